/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stands where libbpf's header of this name does, so that the data path
 * compiles for user space: maps become variables, helpers functions
 * (helpers.h). */
#ifndef CULVERT_NATIVE_BPF_HELPERS_H
#define CULVERT_NATIVE_BPF_HELPERS_H

#include <linux/bpf.h>

#define SEC(name)
#define __hidden
#define __weak __attribute__((weak))
#define __ksym
/* of nf_conn: fields are found here without the loader */
#pragma clang diagnostic ignored "-Wunknown-attributes"
#pragma clang diagnostic ignored "-Wignored-attributes"
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name

void *bpf_map_lookup_elem(void *map, const void *key);
long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags);
long bpf_xdp_adjust_head(struct xdp_md *ctx, int delta);
long bpf_xdp_adjust_meta(struct xdp_md *ctx, int delta);
long bpf_xdp_adjust_tail(struct xdp_md *ctx, int delta);
__u64 bpf_xdp_get_buff_len(struct xdp_md *ctx);
long bpf_xdp_load_bytes(struct xdp_md *ctx, __u32 offset, void *to, __u32 length);
long bpf_xdp_store_bytes(struct xdp_md *ctx, __u32 offset, void *from, __u32 length);
long bpf_skb_pull_data(struct __sk_buff *skb, __u32 length);
long bpf_skb_adjust_room(struct __sk_buff *skb, __s32 delta, __u32 mode, __u64 flags);
long bpf_skb_store_bytes(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length, __u64 flags);
long bpf_skb_load_bytes(struct __sk_buff *skb, __u32 offset, void *to, __u32 length);
long bpf_dynptr_read(void *to, __u32 length, const struct bpf_dynptr *from, __u32 offset, __u64 flags);
long bpf_skb_vlan_push(struct __sk_buff *skb, __be16 protocol, __u16 tag);
long bpf_skb_vlan_pop(struct __sk_buff *skb);
__s64 bpf_csum_update(struct __sk_buff *skb, __u32 sum);
long bpf_redirect(__u32 ifindex, __u64 flags);
long bpf_redirect_peer(__u32 ifindex, __u64 flags);
long bpf_redirect_neigh(__u32 ifindex, struct bpf_redir_neigh *neighbour, int length, __u64 flags);
__u64 bpf_ktime_get_ns(void);
__u64 bpf_ktime_get_coarse_ns(void);
__u64 bpf_jiffies64(void);
__u32 bpf_get_prandom_u32(void);
void bpf_spin_lock(struct bpf_spin_lock *lock);
void bpf_spin_unlock(struct bpf_spin_lock *lock);
long bpf_fib_lookup(void *ctx, struct bpf_fib_lookup *fib, int size, __u32 flags);
long bpf_redirect_map(void *map, __u64 key, __u64 flags);
long bpf_tail_call(void *ctx, void *map, __u32 index);
void *bpf_ringbuf_reserve(void *map, __u64 size, __u64 flags);
__u64 bpf_ringbuf_query(void *map, __u64 flags);
void bpf_ringbuf_submit(void *record, __u64 flags);
void bpf_ringbuf_discard(void *record, __u64 flags);
long bpf_ringbuf_output(void *map, void *record, __u64 size, __u64 flags);

#endif
