/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stands where libbpf's header of this name does: types are the program's own. */
#ifndef CULVERT_NATIVE_BPF_CORE_READ_H
#define CULVERT_NATIVE_BPF_CORE_READ_H

#define bpf_core_field_exists(field) 1
#define bpf_core_type_id_kernel(type) 0

#endif
