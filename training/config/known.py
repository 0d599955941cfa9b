"""The top-level keys that Potato knows, so that a mistyped one is told from one that is not ours."""

from __future__ import annotations

from training.config.schema import DataFile, ItemProperties, PreAnnotation, ProjectConfig

# Potato 1.2 to 2.12, as its documents and real projects use them.
POTATO = ["adjudication", "admin_api_key", "admin_dashboard", "admin_password", "agent_proxy", "agreement_metrics", "ai_support", "alert_time_each_instance", "allow_all_users", "allow_phase_back_navigation", "annotation_codebook_url", "annotation_instructions", "annotation_schemes", "annotation_task_name", "assignment_strategy", "attention_checks", "auto_export_interval", "auto_save", "authentication", "automatic_assignment", "active_learning", "base_css", "base_html_template", "batch_assignment", "bws_config", "ibws_config", "category_assignment", "chat_support", "codebook", "completion_code", "consent_file", "coreference", "crowdsourcing", "customjs", "customjs_hostname", "data_cache", "data_directory", "data_directory_encoding", "data_files", "data_sources", "database", "debug", "debug_log", "debug_phase", "diversity_ordering", "embedding_visualization", "export_annotation_format", "extensions", "format_handling", "footer_file", "gold_standards", "header_file", "header_logo", "hide_navbar", "highlight_linebreaks", "horizontal_key_bindings", "html_layout", "huggingface_backup", "humanize_labels", "icl_labeling", "instance_display", "instance_grouping", "interaction_tracking", "item_properties", "judge_calibration", "jumping_to_id_disabled", "keyboard_navigation", "keyword_highlights_file", "keyword_highlight_settings", "keyword_highlights", "label_suggestions", "language", "layout", "list_as_text", "live_agent", "live_coding_agent", "login", "logo", "mace", "max_annotations_per_item", "max_annotations_per_user", "max_session_seconds", "mediafiles", "media_directory", "media_proxy", "min_annotators_per_instance", "model_review", "model_training", "mturk", "num_annotators_per_item", "oauth", "option_highlighting", "output_annotation_dir", "output_annotation_format", "partial_loading", "persist_sessions", "phases", "port", "post_survey", "poststudy", "pre_annotation", "prestudy", "prolific", "psychometric", "qc_settings", "quality_control", "random_seed", "rbac", "require_fully_annotated", "require_no_password", "require_password", "review_model", "secret_key", "sequential_annotation", "server", "server_name", "server_url", "session_lifetime_days", "showgraph", "similarity", "site_dir", "site_file", "solo_mode", "span_highlighting", "static_dir", "surveyflow", "task_dir", "task_description", "task_layout", "template", "tooltip", "training", "trace_ingestion", "triage", "ui", "ui_config", "ui_language", "user_config", "user_roles", "users", "validation", "verbose", "very_verbose", "visualization", "watch_data_directory", "watch_poll_interval", "webhooks"]

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
ANNOTATION_TYPES = ["agent_interaction_graph", "agent_scorecard", "audio_annotation", "bws", "card_sort", "code_review", "confidence", "conjoint", "consensus_tracking", "constant_sum", "context_attribution", "coreference", "emergent_behavior", "episode_annotation", "error_span", "event_annotation", "extractive_qa", "failure_attribution", "grounding_eval", "gui_trajectory", "handoff_review", "hierarchical_multiselect", "image_annotation", "likert", "multi_document_event", "multimodal_reasoning", "multirate", "multiselect", "number", "pairwise", "process_reward", "pure_display", "radio", "range_slider", "ranking", "region_caption", "rollout_evaluation", "rubric_eval", "select", "semantic_differential", "slider", "soft_label", "span", "span_link", "spatial_annotation", "speech_transcript", "table_grid", "temporal_grounding", "text", "text_edit", "tiered_annotation", "tool_call_review", "tool_contention", "trajectory_edit", "trajectory_eval", "tree_annotation", "triage", "vas", "video", "video_annotation", "voice_interaction"]
