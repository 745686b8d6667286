/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names types that are to be in BTF. The loader ignores the section. */
#ifndef CULVERT_LIB_BTF_H
#define CULVERT_LIB_BTF_H

#include <linux/bpf.h>

#define BTF_TYPE(kind, name) \
	const kind name *const btf_##name __attribute__((section("btf_types"))) = 0

/* Of struct __sk_buff. Of types that are only declared clang writes the order that their addresses
 * happened to have, which differs between directories. */
BTF_TYPE(struct, bpf_flow_keys);
BTF_TYPE(struct, bpf_sock);

#endif
