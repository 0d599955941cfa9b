"""The top-level keys that Potato knows, so that a mistyped one is told from one that is not ours."""

from __future__ import annotations

from training.config.schema import DataFile, ItemProperties, PreAnnotation, ProjectConfig

# Of Potato 1.2 to 2.12, as far as they are documented. Generous on purpose: a key too many costs a hint, a key too few
# tells a person that a good key is mistyped.
POTATO = """
    active_learning adjudication admin_api_key admin_dashboard agent_proxy ai_support alert_time_each_instance
    allow_all_users allow_phase_back_navigation annotation_codebook_url annotation_schemes annotation_task_name
    assignment_strategy attention_checks authentication auto_export_interval automatic_assignment base_css
    base_html_template batch_assignment bws_config category_assignment chat_support codebook customjs
    customjs_hostname data_directory data_directory_encoding data_files data_sources database debug debug_log
    diversity_ordering embedding_visualization export_annotation_format header_file header_logo hide_navbar
    highlight_linebreaks horizontal_key_bindings html_layout huggingface_backup humanize_labels ibws_config
    instance_display instance_grouping item_properties judge_calibration jumping_to_id_disabled
    keyword_highlight_settings keyword_highlights_file label_suggestions list_as_text live_agent
    live_coding_agent login max_annotations_per_item max_annotations_per_user max_session_seconds
    media_directory media_proxy min_annotators_per_instance model_training num_annotators_per_item oauth
    output_annotation_dir output_annotation_format persist_sessions phases port poststudy pre_annotation
    prestudy prolific psychometric qc_settings quality_control random_seed rbac require_fully_annotated
    require_no_password require_password secret_key sequential_annotation server server_name server_url
    session_lifetime_days site_dir site_file solo_mode surveyflow task_dir task_layout training ui ui_config
    user_config user_roles validation watch_data_directory watch_poll_interval
""".split()  # noqa: SIM905 - a list of so many words is read best as text

TOP_LEVEL = sorted({*POTATO, *ProjectConfig.model_fields})

# Mappings of Potato's all of whose keys are known.
NESTED = {
    "item_properties": [*ItemProperties.model_fields, "category_key", "kwargs", "image_key", "context_key"],
    "pre_annotation": [
        *PreAnnotation.model_fields,
        *("highlight_low_confidence", "agreement_metrics", "predictions_file", "allow_modification", "show_confidence"),
    ],
    "validation": ["acknowledge"],
}
DATA_FILE = [*DataFile.model_fields, "filter_by_prior_annotation"]

# The types of scheme that Potato 2.8 knows.
ANNOTATION_TYPES = """
    agent_interaction_graph agent_scorecard audio_annotation bws card_sort code_review confidence conjoint
    consensus_tracking constant_sum context_attribution coreference emergent_behavior episode_annotation
    error_span event_annotation extractive_qa failure_attribution grounding_eval gui_trajectory handoff_review
    hierarchical_multiselect image_annotation likert multi_document_event multimodal_reasoning multirate
    multiselect number pairwise process_reward pure_display radio range_slider ranking region_caption
    rollout_evaluation rubric_eval select semantic_differential slider soft_label span span_link
    spatial_annotation speech_transcript table_grid temporal_grounding text text_edit tiered_annotation
    tool_call_review tool_contention trajectory_edit trajectory_eval tree_annotation triage vas video
    video_annotation voice_interaction
""".split()  # noqa: SIM905 - a list of so many words is read best as text
