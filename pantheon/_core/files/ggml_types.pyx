"""The table of tensor types. Numbers without a row were withdrawn from the format, or belong to forks of it.

I2_S is a fork's: 32 bytes follow a tensor's rows, of which the first four are its f32 scale.
"""
from libc.stdint cimport uint32_t


cdef extern from *:
    """
    static const ggml_type_info pn_ggml_types[] = {
        [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
        [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
        [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
        [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
        [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
        [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
        [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
        [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
        [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
        [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
        [35] = {"TQ2_0", 256, 66},   [36] = {"I2_S", 128, 32, 32},[39] = {"MXFP4", 32, 17},
        [40] = {"NVFP4", 64, 36},    [41] = {"Q1_0", 128, 18},    [42] = {"Q2_0", 64, 18},
    };
    enum { PN_GGML_TYPES = sizeof pn_ggml_types / sizeof pn_ggml_types[0] };
    """
    const ggml_type_info pn_ggml_types[1]
    const uint32_t PN_GGML_TYPES


cdef const ggml_type_info *ggml_type(uint32_t number) noexcept nogil:
    if number >= PN_GGML_TYPES or pn_ggml_types[number].name == NULL:
        return NULL
    return &pn_ggml_types[number]


def tensor_types():
    """The table as {number: (name, elements per block, bytes per block)}."""
    cdef const ggml_type_info *info
    cdef uint32_t number
    table = {}
    for number in range(PN_GGML_TYPES):
        info = ggml_type(number)
        if info != NULL:
            table[number] = ((<bytes> info.name).decode("ascii"), info.block, info.bytes)
    return table
