"""GLM-4.6V-Flash: GLM-4.1V's decoder and vision tower under another class."""

from transformers import Glm46VForConditionalGeneration
from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil

from ridgerank.backbones.decoder import Decoder
from ridgerank.backbones.glm4v import Glm41V
from ridgerank.backbones.prompt import INSTRUCTION, Prompt
from ridgerank.errors import BackboneError


class Glm46V(Glm41V):
    """GLM-4.6V-Flash, its thinking closed before it starts; the larger GLM-4.6V mixes experts."""

    prompt = Prompt(
        before_page="[gMASK]<sop><|user|>\n<|begin_of_image|>",
        after_page="<|end_of_image|>",
        instruction=INSTRUCTION,
        after_query="<|assistant|>\n<think></think>\n",
        answers=("yes", "no"),
    )
    model_class = Glm46VForConditionalGeneration
    image_processor_class = Glm46VImageProcessorPil

    def _build_decoder(self) -> Decoder:
        kind = self._text_model().config.model_type
        if kind != "glm4v_text":
            raise BackboneError(
                f"{self.name} has a {kind!r} decoder; only 'glm4v_text' is supported, as in GLM-4.6V-Flash"
            )
        return super()._build_decoder()
