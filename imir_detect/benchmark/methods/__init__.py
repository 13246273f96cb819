"""Circuit-discovery methods, one file each; importing this package registers them all."""

from imir_detect.benchmark.methods import (  # noqa: F401
    acdc,
    attention_patterns,
    composition,
    eap,
    eap_ig,
    edge_patching,
    floor_and_ceiling,
    hisp,
    imir,
    imir_eliminate,
    mask_gradients,
    masks,
)
