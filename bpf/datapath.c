// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "maps.h"

SEC("xdp")
int culvert_xdp(struct xdp_md *ctx)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&settings, &zero) ? XDP_PASS : XDP_ABORTED;
}

char _license[] SEC("license") = "Dual BSD/GPL";
