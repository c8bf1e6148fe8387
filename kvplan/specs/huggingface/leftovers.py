"""What becomes of config fields that no adapter read: harmless, refused, or a warning. Never silence."""

from __future__ import annotations

import re
from typing import Any, Final

from kvplan.errors import UnsupportedModelError
from kvplan.specs.huggingface.config import Config

#: Fields that say nothing about memory or work, by exact name or pattern; compiled where a config has fields left.
HARMLESS: Final = r"""^(
    _.*|architectures|auto_map|model_type|transformers_version|torch_dtype|dtype|use_cache|tokenizer_class|name|task
    |.*token_ids?|.*(?<!_per)_token|.*token_index|.*dropout.*|.*_pdrop|.*drop(_rate)?|.*drop_path.*
    |rope.*|.*rope_theta|.*rope_scaling|rotary.*|partial_rotary_factor|.*rotary_.*|alibi.*|position_embedding_type
    |init.*|.*initializer.*|.*init_(std|range).*|.*_eps|.*epsilon|.*_act|.*activation.*|act_.*|.*_activation_function
    |pretraining_tp|gradient_checkpointing|attn_implementation|.*flash_attn.*|use_flash.*|_?attn_implementation.*|cache_implementation
    |output_(attentions|hidden_states|scores|router_logits)|return_dict.*|torchscript|chunk_size_feed_forward
    |is_(decoder|encoder_decoder)|tie_encoder_decoder
    |(num_)?(return_sequences|beams?|beam_groups)|max_length|min_length|do_sample|early_stopping|length_penalty
    |temperature|top_[kp]|typical_p|diversity_penalty|repetition_penalty|encoder_no_repeat_ngram_size
    |no_repeat_ngram_size|bad_words_ids|suppress_tokens|begin_suppress_tokens|remove_invalid_values
    |exponential_decay_length_penalty|finetuning_task|task_specific_params|problem_type|prefix|sep_token_id
    |id2label|label2id|num_labels|use_bfloat16|tf_legacy_loss|(bf16|fp16|fp32)
    |router_(aux_loss_coef|z_loss_coef|jitter_noise)|.*aux_loss.*|.*jitter.*|.*z_loss.*|.*load_balanc.*
    |norm_topk_prob|routed_scaling_factor|scoring_func|topk_method|seq_aux|.*loss_coef.*|.*loss_weight.*
    |(attn|final)_logit_softcapping|.*soft_?cap.*|logits?_(scale|scaling)|query_pre_attn_scalar|.*multiplier
    |attention_softmax_in_fp32|scale_attention_softmax_in_fp32|scale_attn.*|reorder_and_upcast_attn|.*_in_fp32
    |summary_.*|unsloth.*|.*use_cache.*|eos.*|bos.*|pad_.*|language|license|model_name
    )$"""

_MOST_FIELDS: Final = 2_000
#: A name with one of these in it may change memory or work.
SMELLS: Final = (
    r"cache|window|expert|moe|kv|head|layer|dim|size|rank|latent|sparse|index|ssm|conv|state|share|compress|mtp|nextn"
    r"|^num_|^n_|width|hidden|intermediate|block|bias|tie|adapter|lora|embed|memory|gate|group|mamba|attn|attention"
    r"|linear|stride|pattern|interleave|sink|norm|depth|feature|chunk|engram|ngram|hash|loop|recurr|ffn|mlp|quant|cross|pruned"
)


def judge_leftovers(config: Config) -> None:
    """Go through all fields that nobody read.

    Unknown harmless-looking fields become warnings.

    Raises:
        UnsupportedModelError: A field that may change memory and is not understood.
    """
    for count, (owner, name, value) in enumerate(config.unread()):
        if count >= _MOST_FIELDS:
            raise owner.unsupported(name, f"is one of more than {_MOST_FIELDS:,} fields that kvplan does not know")
        if re.match(HARMLESS, name, re.VERBOSE) or _is_off(value):
            continue
        if re.search(SMELLS, name):
            near = owner.nearest(name)
            msg = (
                f"{owner.source}: {owner.field(name)}: not understood for model_type {owner.model_type!r}, and it may "
                "change memory or work"
            )
            hint = f"did you mean {near!r}?" if near else "remove the field if it changes nothing, or report the family"
            raise UnsupportedModelError(msg, hint=hint)
        config.warnings.append(f"{owner.field(name)}: not understood, taken as harmless")


def _is_off(value: Any) -> bool:  # noqa: ANN401 - whatever the file holds
    """True for null, false, zero, empty and a list of full attention layers: a feature that is switched off."""
    if isinstance(value, list) and value and all(item == "full_attention" for item in value):
        return True
    return value is None or value is False or value in (0, "", "none") or value in ([], {})
