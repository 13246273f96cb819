"""Which kinds of model are read, as `imir-detect support` prints them.

Every row is a test: a tiny random model of that kind is read and its attention, predicted from its
own residual stream, compared with what it does, at every layer and head; or it is refused with the
reason given here. Kinds that are not listed are tried all the same, since every reading is checked
against the model's own run before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """A kind of model. `attention`: what decides its attention beside the bilinear form; `reason`:
    why it is refused, empty where it is read; `limit`: what is left out of a reading."""

    name: str
    attention: str
    reason: str = ""
    limit: str = ""

    @property
    def read(self) -> bool:
        return not self.reason


EXPERTS = "mixtures of experts are run, not read"
FAMILIES: tuple[Family, ...] = (
    Family("TransformerLensNative", "learned or rotary positions, grouped queries, soft caps"),
    Family("HookedTransformer", "learned, rotary, ALiBi or shortformer positions, local windows"),
    Family("GPT2LMHeadModel", "learned positions"),
    Family("GPTBigCodeForCausalLM", "learned positions, one key/value head"),
    Family("OPTForCausalLM", "learned positions"),
    Family("XGLMForCausalLM", "sinusoidal positions"),
    Family("GPTNeoForCausalLM", "learned positions, unscaled scores, local windows"),
    Family("GPTNeoXForCausalLM", "rotary positions on a part of each head, parallel MLP"),
    Family("GPTJForCausalLM", "rotary positions in adjacent pairs, parallel MLP"),
    Family("PhiForCausalLM", "rotary positions on a part of each head, parallel MLP"),
    Family("FalconForCausalLM", "rotary positions, one key/value head, parallel MLP"),
    Family("StableLmForCausalLM", "rotary positions on a part of each head"),
    Family("LlamaForCausalLM", "rotary positions, grouped queries"),
    Family("MistralForCausalLM", "rotary positions, grouped queries, sliding windows"),
    Family("Qwen2ForCausalLM", "rotary positions, grouped queries, query and key biases"),
    Family("Qwen3ForCausalLM", "rotary positions, grouped queries, query-key norm"),
    Family("GemmaForCausalLM", "rotary positions, grouped queries"),
    Family("Gemma2ForCausalLM", "rotary positions, sliding windows, soft caps, norms after layers"),
    Family("Gemma3ForCausalLM", "two rotary bases, sliding windows, query-key norm"),
    Family("Phi3ForCausalLM", "rotary positions, grouped queries"),
    Family("OlmoForCausalLM", "rotary positions"),
    Family("Olmo2ForCausalLM", "rotary positions, norm over all queries, norms after layers only"),
    Family("Olmo3ForCausalLM", "as Olmo2ForCausalLM, with sliding windows"),
    Family("GraniteForCausalLM", "rotary positions, scaled embeddings, residuals and logits"),
    Family("Starcoder2ForCausalLM", "rotary positions, grouped queries"),
    Family("SmolLM3ForCausalLM", "rotary positions in most layers, grouped queries"),
    Family("NemotronForCausalLM", "rotary positions on a part of each head"),
    Family("CohereForCausalLM", "rotary positions in adjacent pairs, parallel MLP"),
    Family("Cohere2ForCausalLM", "rotary positions in windowed layers only, parallel MLP"),
    Family("GlmForCausalLM", "rotary positions in adjacent pairs on a part of each head"),
    Family("Glm4ForCausalLM", "as GlmForCausalLM, with norms after layers"),
    Family("Exaone4ForCausalLM", "rotary positions in windowed layers only, query-key norm"),
    Family("Ernie4_5ForCausalLM", "rotary positions in adjacent pairs, grouped queries"),
    Family("BloomForCausalLM", "ALiBi, embedding norm"),
    Family("MptForCausalLM", "ALiBi"),
    Family("MixtralForCausalLM", "rotary positions, grouped queries", limit=EXPERTS),
    Family("Qwen2MoeForCausalLM", "rotary positions, grouped queries", limit=EXPERTS),
    Family("Qwen3MoeForCausalLM", "rotary positions, query-key norm", limit=EXPERTS),
    Family("OlmoeForCausalLM", "rotary positions, norm over all queries", limit=EXPERTS),
    Family("GptOssForCausalLM", "rotary positions, attention sinks, windows", limit=EXPERTS),
    Family("BertForMaskedLM", "", reason="bidirectional attention"),
    Family("T5ForConditionalGeneration", "", reason="an encoder beside its decoder"),
    Family("MambaForCausalLM", "", reason="no attention layers of the usual kind"),
    Family("Lfm2ForCausalLM", "", reason="no attention in layers 0, 2"),
    Family("OpenAIGPTLMHeadModel", "", reason="norms after each layer instead of before it"),
    Family("DeepseekV3ForCausalLM", "", reason="latent (low-rank) keys and values"),
    Family("Llama4ForCausalLM", "", reason="chunked attention"),
)
