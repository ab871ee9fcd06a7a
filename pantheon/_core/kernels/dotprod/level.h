/* Names of this level: the sources of neon/ compiled with sdot. */
#ifndef PN_DOTPROD_LEVEL_H
#define PN_DOTPROD_LEVEL_H

#define PN_NEON(family) pn_dotprod_##family
#define NEON_LEVEL "dotprod"

#endif
