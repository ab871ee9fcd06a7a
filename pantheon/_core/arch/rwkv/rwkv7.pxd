# The RWKV-7 block, and the channel mix that attention blocks share with it; run by all ranks of a team together.
from pantheon._core.arch.rwkv.structs cimport pn_rwkv7_block, pn_rwkv_ffn, rx_job, rx_view
from pantheon._core.layers.linear cimport pn_team

# nogil. On entry the residual stream of the rank's tokens is whole, and so it is on exit.
cdef void rwkv7_block(rx_job *job, pn_team *team, rx_view *v, int b) noexcept nogil
# nogil. Adds work.delta to the residual stream, then the channel mix; slot: its token shift in rx_state.shift. Enter
# behind a barrier that made delta whole.
cdef void rwkv_channel_mix(rx_job *job, pn_team *team, rx_view *v, const pn_rwkv_ffn *ffn, int slot) noexcept nogil
# nogil. Norm of the residual stream of the rank's tokens into the stream's `normed`.
cdef void rwkv_norm(rx_job *job, rx_view *v, const float *ln_w, const float *ln_b) noexcept nogil
