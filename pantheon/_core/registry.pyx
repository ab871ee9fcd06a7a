"""The architectures that this version runs, one line each (see registry.pxd for the contract)."""
from libc.stdint cimport int64_t

from pantheon._core.arch.llama.ops cimport pn_llama_ops
from pantheon._core.arch.llama.phi cimport pn_phi_ops
from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.arch.qwen35.ops cimport pn_qwen35moe_ops
from pantheon._core.arch.rwkv.ops cimport pn_rwkvx_ops
from pantheon._core.files.gguf cimport gguf_get_int
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.types cimport (
    PN_ARCH_BITNET,
    PN_ARCH_BITNET_25,
    PN_ARCH_BITNET_B158,
    PN_ARCH_COUNT,
    PN_ARCH_LLAMA,
    PN_ARCH_MISTRAL,
    PN_ARCH_MIXTRAL,
    PN_ARCH_PHI2,
    PN_ARCH_PHI3,
    PN_ARCH_QWEN2,
    PN_ARCH_QWEN2MOE,
    PN_ARCH_QWEN3,
    PN_ARCH_QWEN3MOE,
    PN_ARCH_QWEN35,
    PN_ARCH_QWEN35MOE,
    PN_ARCH_RWKVX,
    PN_ROPE_NEOX,
    PN_ROPE_NORM,
    pn_model,
    pn_state,
)

from pantheon._core.arch.llama import hf as llama
from pantheon._core.arch.qwen35 import hf as qwen35

cdef pn_arch_ops registry[PN_ARCH_COUNT]
registry[0] = pn_llama_ops(b"llama", PN_ARCH_LLAMA, PN_ROPE_NORM)
registry[1] = pn_llama_ops(b"mistral", PN_ARCH_MISTRAL, PN_ROPE_NORM)
registry[2] = pn_llama_ops(b"qwen2", PN_ARCH_QWEN2, PN_ROPE_NEOX)
registry[3] = pn_llama_ops(b"qwen3", PN_ARCH_QWEN3, PN_ROPE_NEOX)
registry[4] = pn_llama_ops(b"mixtral", PN_ARCH_MIXTRAL, PN_ROPE_NORM)
registry[5] = pn_llama_ops(b"qwen2moe", PN_ARCH_QWEN2MOE, PN_ROPE_NEOX)
registry[6] = pn_llama_ops(b"qwen3moe", PN_ARCH_QWEN3MOE, PN_ROPE_NEOX)
registry[7] = pn_phi_ops(b"phi2", PN_ARCH_PHI2)
registry[8] = pn_phi_ops(b"phi3", PN_ARCH_PHI3)
registry[9] = pn_llama_ops(b"bitnet", PN_ARCH_BITNET, PN_ROPE_NEOX)
registry[10] = pn_llama_ops(b"bitnet-b1.58", PN_ARCH_BITNET_B158, PN_ROPE_NEOX)
registry[11] = pn_llama_ops(b"bitnet-25", PN_ARCH_BITNET_25, PN_ROPE_NEOX)
registry[12] = pn_qwen35moe_ops(b"qwen35", PN_ARCH_QWEN35)
registry[13] = pn_qwen35moe_ops(b"qwen35moe", PN_ARCH_QWEN35MOE)
registry[14] = pn_rwkvx_ops()


# Hugging Face's model classes, by name.
HF_CLASSES = {**llama.CLASSES, **qwen35.CLASSES}


cdef const pn_arch_ops *ops_named(str name) noexcept:
    cdef int i
    for i in range(PN_ARCH_COUNT):
        if registry[i].name.decode() == name:
            return &registry[i]
    return NULL


cdef const pn_arch_ops *ops_of_gguf(const gguf_file *f, str name) except? NULL:
    cdef int64_t n_experts = 0
    if name == "llama" and gguf_get_int(f, b"llama.expert_count", 0, &n_experts) and n_experts > 0:
        return &registry[<int>PN_ARCH_MIXTRAL]
    return ops_named(name)


cdef const pn_arch_ops *ops_without_config() noexcept nogil:
    return &registry[<int>PN_ARCH_RWKVX]


cdef const pn_arch_ops *ops_of(const pn_model *model) noexcept nogil:
    return &registry[<int>model.config.arch]


cdef const pn_arch_ops *ops_of_state(const pn_state *state) noexcept nogil:
    return &registry[<int>state.config.arch]


cdef const pn_arch_ops *ops_numbered(int arch) noexcept nogil:
    return &registry[arch] if 0 <= arch < PN_ARCH_COUNT else NULL


def architectures():
    """Names of the architectures that this version runs."""
    cdef int i
    return [registry[i].name.decode() for i in range(<int>PN_ARCH_COUNT)]
