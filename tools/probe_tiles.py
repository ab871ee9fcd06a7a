"""Prints what the matrix x matrix path reaches in one thread, in 1e9 multiply-adds a second.

    python tools/probe_tiles.py [--level avx2] [--types Q4_0,Q4_K] [--shape 1536x4864] [--tokens 512] [--repeats 5]

"tile" is the products alone, "total" includes unpacking the weights and packing the input. "of ceiling" compares the
tile with a loop of the level's product instructions on registers alone.
"""
import argparse

import numpy as np

from pantheon._core.kernels import table
from pantheon._core.probes import rates, tiles

TYPES = ("Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_NL,IQ4_XS,MXFP4,NVFP4,IQ2_XXS,IQ2_XS,IQ2_S,IQ3_XXS,"
         "IQ3_S,IQ1_S,IQ1_M,TQ1_0,TQ2_0,Q1_0,Q2_0,F32,F16,BF16")


def random_input(rng, act, n_tok, n):
    if act == "f32":
        return tiles.Activations(n, n_tok, f=rng.standard_normal((n_tok, n)).astype(np.float32))
    q = rng.integers(-127, 128, (n_tok, n)).astype(np.int8)
    if act == "q32":
        d = np.full((n_tok, n // 32), 0.01, np.float32)
        bsum = q.reshape(n_tok, -1, 32).sum(2, dtype=np.int32)
        return tiles.Activations(n, n_tok, q=q, d=d, s=d * bsum.astype(np.float32), bsum=bsum)
    d = np.full((n_tok, n // 256), 0.01, np.float32)
    return tiles.Activations(n, n_tok, q=q, d=d, sum=q.reshape(n_tok, -1, 16).sum(2, dtype=np.int16))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default=table.cpu_info()["level"])
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--shape", default="1536x4864", help="columns x rows")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    n, n_rows = (int(v) for v in args.shape.split("x"))
    rng = np.random.default_rng(0)
    ceiling = 1e-9 * rates.multiply_peak(args.level)
    print(f"level {args.level}, {n} columns, {n_rows} rows, {args.tokens} tokens; ceiling {ceiling:.1f} G/s")
    for name in args.types.split(","):
        info = table.type_info(name, args.level)
        row_bytes = n // info["block"] * info["block_bytes"]
        w = rng.integers(16, 60, n_rows * row_bytes, np.uint8)  # any two or four of these bytes are a normal number
        x = random_input(rng, info["act"], args.tokens, n)
        best = tiles.measure(args.level, name, w, row_bytes, n_rows, n, x, args.repeats)
        work = n * n_rows * args.tokens * 1e-9
        total = sum(best.values())
        tile = work / best["tile"]
        print(f"{name:7} tile {tile:6.1f}  total {work / total:6.1f} G/s  of ceiling {tile / ceiling:4.0%}  "
              f"unpack {best['unpack'] / total:5.1%}  pack {best['pack'] / total:5.1%}")


if __name__ == "__main__":
    main()
