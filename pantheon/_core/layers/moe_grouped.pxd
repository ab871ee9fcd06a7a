# The experts of several tokens: a row is one (token, choice), rows of an expert lie side by side and go through its
# matrices together.
from pantheon._core.layers.linear cimport pn_input, pn_team
from pantheon._core.layers.moe_weights cimport pn_moe, pn_moe_work

# nogil. work.out = every row through its expert, rows as work.ranks[..].first and .row say, the shared expert's last.
# On entry work.chosen is whole and a barrier has passed; one passes before the return.
cdef void grouped_experts(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work) noexcept nogil
