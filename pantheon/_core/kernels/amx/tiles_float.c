/* The tiles of the level below, of as many tokens as divide a unit of 16: then ranks can split the tokens of a chunk at
 * every 16. */
#include "kernels.h"
#include "pack.h"

void pn_amx_tiles_float(pn_kernels *k)
{
    for (int i = 0; i < PN_TYPE_COUNT; i++) {
        pn_type_ops *ops = &k->type[i];
        while (ops->tile && UNIT % ops->pack_tok)
            ops->tile_tok = --ops->pack_tok;
    }
}
