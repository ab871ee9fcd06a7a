# The attention block of RWKV-X, and the choice of what a prompt leaves in memory; run by all ranks of a team together.
from pantheon._core.arch.rwkv.structs cimport rx_job, rx_view
from pantheon._core.layers.linear cimport pn_team

# nogil. Attention block a for a window. On entry the residual stream of the rank's tokens is whole, and so it is on
# exit. job.attn says what each token sees.
cdef void rwkvx_attention(rx_job *job, pn_team *team, rx_view *v, int a) noexcept nogil
# nogil. Fills prompt.slot for the attention block after RWKV-7 block b, which has run for the whole prompt.
cdef void rwkvx_select(rx_job *job, pn_team *team, int b) noexcept nogil
