/* Constants of an RWKV-7 time mix. */
#ifndef PN_RWKV_H
#define PN_RWKV_H

#define PN_RWKV_DECAY -0.606531f /* -exp(-1/2) as the published model has it */
#define PN_RWKV_NORM_EPS 64e-5f
#define PN_RWKV_TINY 1e-12f

#endif
