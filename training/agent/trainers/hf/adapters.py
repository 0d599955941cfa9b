"""LoRA through peft: which layers get an adapter, and how it becomes part of the model again."""

from pathlib import Path
from typing import Any, List, Mapping


def adapt(model: Any, params: Mapping[str, Any]) -> Any:
    """The model wrapped by peft: adapters on every linear layer of the encoder, new layers trained whole."""
    from peft import LoraConfig, get_peft_model

    whole = _trained_whole(model)
    config = LoraConfig(
        task_type="SEQ_CLS",
        r=params["lora_r"],
        lora_alpha=params["lora_alpha"],
        lora_dropout=params["lora_dropout"],
        target_modules=_targets(model, whole),
        modules_to_save=whole,
    )
    return get_peft_model(model, config)


def _targets(model: Any, whole: List[str]) -> List[str]:
    """The linear layers (GPT-2 calls its own Conv1D) inside the encoder, by their full names."""
    import torch
    from transformers.pytorch_utils import Conv1D

    inside = model.base_model_prefix + "."
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, (torch.nn.Linear, Conv1D)) and name.startswith(inside) and not _is_under(name, whole)
    ]


def _trained_whole(model: Any) -> List[str]:
    """What an adapter cannot carry: the head, and layers whose weights came with no file and are random."""
    head = [
        name
        for name, child in model.named_children()
        if name != model.base_model_prefix and any(True for _ in child.parameters())
    ]
    fresh = sorted({key.rpartition(".")[0] for key in model.fresh_keys})
    return head + [name for name in fresh if not _is_under(name, head)]


def _is_under(name: str, modules: List[str]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


def save_and_merge(model: Any, folder: Path) -> Any:
    """Save the adapter (a few MB, for whoever has the base model) and return the plain model with it added in."""
    model.save_pretrained(str(folder))
    return model.merge_and_unload()
