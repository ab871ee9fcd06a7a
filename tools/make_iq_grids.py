"""Writes pantheon/_core/kernels/iq_grids.h from the grids of the gguf package.

    python tools/make_iq_grids.py > pantheon/_core/kernels/iq_grids.h
"""
from gguf import quants

# name of the C array -> (class of gguf.quants, bits of a packed value)
GRIDS = {
    "iq2_xxs_grid": (quants.IQ2_XXS, 2),
    "iq2_xs_grid": (quants.IQ2_XS, 2),
    "iq2_s_grid": (quants.IQ2_S, 2),
    "iq3_xxs_grid": (quants.IQ3_XXS, 4),
    "iq3_s_grid": (quants.IQ3_S, 4),
    "iq1_grid": (quants.IQ1_S, 2),
}

HEAD = """\
/* Grids of the IQ types, made by tools/make_iq_grids.py. A row is 8 values of 2 bits or 4 values of 4 bits, the first
 * one in the lowest bits; each is an index into the grid's list of values. */
#ifndef PN_IQ_GRIDS_H
#define PN_IQ_GRIDS_H

#include <stdint.h>
"""


def main():
    print(HEAD)
    for name, (cls, bits) in GRIDS.items():
        cls.init_grid()
        values = [int(v) for v in cls.grid_map]
        rows = cls.grid.reshape(cls.grid_shape).astype(int).tolist()
        packed = [f"0x{sum(values.index(v) << bits * j for j, v in enumerate(row)):04x}" for row in rows]
        print(f"static const int8_t {name}_values[{len(values)}] = {{{', '.join(map(str, values))}}};")
        print(f"static const uint16_t {name}[{len(rows)}] = {{")
        for i in range(0, len(packed), 14):
            print("    " + ", ".join(packed[i:i + 14]) + ",")
        print("};\n")
    print("#endif")


if __name__ == "__main__":
    main()
