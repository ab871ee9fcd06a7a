/* Every sum and maximum over a vector runs in 8 lanes (element i in lane i % 8), which meet in one fixed tree. A level
 * with 8-wide registers gives the same bits as the scalar loop. */
#ifndef PN_LANES_H
#define PN_LANES_H

enum { PN_LANES = 8 };

/* b unless a is greater, so a NaN in a never wins: the rule of maxps. */
static inline float pn_max(float a, float b)
{
    return a > b ? a : b;
}

static inline float pn_lanes_sum(const float lane[PN_LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static inline float pn_lanes_max(const float lane[PN_LANES])
{
    return pn_max(pn_max(pn_max(lane[0], lane[4]), pn_max(lane[2], lane[6])),
                  pn_max(pn_max(lane[1], lane[5]), pn_max(lane[3], lane[7])));
}

#endif
