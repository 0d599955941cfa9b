"""The words of the trainers' declarations (training/agent/trainers, without gettext) for makemessages.

Written by tests/house/test_trainer_words.py, which holds it complete and says how.
"""

# fmt: off
# ruff: noqa: E501

from django.utils.translation import gettext_noop as _

WORDS = (
    _("TF-IDF and a linear model (scikit-learn)"),
    _("C"),
    _("Larger follows the training texts more closely (inverse of the regularisation)"),
    _("Features"),
    _("Words, characters within words, or both"),
    _("Longest word n-gram"),
    _("Words in a row that count as one feature"),
    _("words"),
    _("Longest character n-gram"),
    _("characters"),
    _("Least number of texts"),
    _("A feature that fewer texts hold is left out"),
    _("Most features of each kind"),
    _("Class weight"),
    _("balanced: a rare class weighs as much as a frequent one"),
    _("Calibrate"),
    _("Correct the confidences by the val items: at 0.8, 8 of 10 should be right"),
    _("Multilabel threshold"),
    _("A label is given from this probability on"),
    _("Fewest training items"),
    _("With fewer, the run ends with an error that says so"),
    _("Fine-tune a transformer encoder (Hugging Face)"),
    _("Model"),
    _("A folder on the machine that trains (full path), package:NAME of an installed package that holds a model, or a name on the Hugging Face Hub"),
    _("Method"),
    _("full: all weights but the word embeddings; lora: small adapters, merged at the end"),
    _("Epochs"),
    _("Times that every text is seen; few texts are seen more often, see Fewest steps"),
    _("Fewest steps"),
    _("With few texts there are more epochs (at most 20) until there are so many steps"),
    _("Batch size"),
    _("Texts in one step; 0 chooses 8, 16 or 32 by the number of texts"),
    _("texts"),
    _("Learning rate"),
    _("0 chooses: 0.0001 for 16 texts a step and 0.0002 for 32; 0.001 for lora"),
    _("Weight decay"),
    _("Longest text"),
    _("Word pieces; longer texts are cut. Less is taken where 99 of 100 texts are shorter"),
    _("word pieces"),
    _("Keep the word embeddings"),
    _("Half of a small model's weights, which little data hardly moves (full only)"),
    _("LoRA rank"),
    _("LoRA alpha"),
    _("LoRA dropout"),
    _("Keep the best epoch"),
    _("Of all epochs, take the one with the least loss on the val split"),
    _("Precision"),
    _("auto: bfloat16 where the processor or GPU is fast at it"),
)
