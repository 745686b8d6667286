/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's side of culvert_pod and culvert_uplink: a packet whose beginning
 * is in one piece, against the page that nobody may read; the rest is elsewhere
 * until it is asked for. */
#ifndef CULVERT_NATIVE_SKB_H
#define CULVERT_NATIVE_SKB_H

#include "frame.h"

static struct {
	__u8 b[MAX_FRAME];
	__u32 from, to; /* of the frame's octets, those that are not in one piece */
	__u32 room;     /* for headers that are pushed */
	__u32 held;     /* conntrack's entries */
	int tunnelled;  /* the kernel knows it as a packet in a tunnel already */
} rest;

static __u32 linear(struct __sk_buff *skb)
{
	return skb->data_end - skb->data;
}

/* The linear part begins at `data`, and ends with the buffer. */
static void begin_at(struct __sk_buff *skb, __u32 data)
{
	struct xdp_md range = { .data = data };

	skb->data = data;
	skb->data_end = (__u32)(long)(buffer + BUFFER);
	fence(&range);
}

/* Tags are beside the packet, as the kernel has them. */
static void place_skb(struct __sk_buff *skb, const struct frame *f, __u32 in_one_piece)
{
	__u16 type = be16(ld16(f->b + 12));
	__u32 tag = type == TYPE_VLAN || type == TYPE_QINQ ? VLAN_LEN : 0;

	skb->vlan_present = !!tag;
	skb->len = f->length - tag;
	if (in_one_piece > skb->len)
		in_one_piece = skb->len;
	begin_at(skb, (__u32)(long)(buffer + BUFFER) - in_one_piece);
	INITIALIZED((void *)(long)skb->data, in_one_piece);
	memcpy(rest.b, f->b, 12);
	memcpy(rest.b + 12, f->b + 12 + tag, skb->len - 12);
	memcpy((void *)(long)skb->data, rest.b, in_one_piece);
	rest.from = in_one_piece;
	rest.to = skb->len;
	skb->protocol = ld16(rest.b + 12);
}

long bpf_skb_pull_data(struct __sk_buff *skb, __u32 length)
{
	__u32 have = linear(skb), more = length - have;
	__u8 *data = (__u8 *)(long)skb->data;

	if (length > skb->len)
		return -ENOMEM;
	if (length <= have)
		return 0;
	begin_at(skb, skb->data - more);
	memmove(data - more, data, have);
	INITIALIZED(buffer + BUFFER - more, more);
	memcpy(buffer + BUFFER - more, rest.b + rest.from, more);
	rest.from += more;
	return 0;
}

/* `n` octets are made, or go, behind the first `at`. */
static void move_head(struct __sk_buff *skb, __u32 at, __s32 n)
{
	__u8 head[ETH_LEN + IPV6_LEN];

	must(at <= sizeof(head), "a head of %u octets", at);
	memcpy(head, (void *)(long)skb->data, at);
	begin_at(skb, skb->data - n);
	skb->len += n;
	memcpy((void *)(long)skb->data, head, at);
	if (n > 0)
		UNINITIALIZED((void *)(long)(skb->data + at), n);
}

#define SHRINK_FLAGS                                                                              \
	(BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET | BPF_F_ADJ_ROOM_DECAP_L3_IPV4 | \
	 BPF_F_ADJ_ROOM_DECAP_L3_IPV6)

static long shrink(struct __sk_buff *skb, __u32 n, __u32 mode, __u64 flags)
{
	__u32 at = ETH_LEN, least = skb->protocol == be16(TYPE_IPV4) ? IPV4_LEN : IPV6_LEN;

	must(!(flags & ~SHRINK_FLAGS), "flags %llx", (unsigned long long)flags);
	if (mode == BPF_ADJ_ROOM_NET)
		at += least;
	if (flags & BPF_F_ADJ_ROOM_DECAP_L3_IPV4)
		least = IPV4_LEN;
	if (flags & BPF_F_ADJ_ROOM_DECAP_L3_IPV6)
		least = IPV6_LEN;
	if (skb->len < ETH_LEN + n + least)
		return -EOPNOTSUPP;
	if (bpf_skb_pull_data(skb, at + n > linear(skb) ? at + n : linear(skb)))
		return -ENOMEM;
	move_head(skb, at, -(__s32)n);
	if (flags & BPF_F_ADJ_ROOM_DECAP_L3_IPV4)
		skb->protocol = be16(TYPE_IPV4);
	if (flags & BPF_F_ADJ_ROOM_DECAP_L3_IPV6)
		skb->protocol = be16(TYPE_IPV6);
	return 0;
}

long bpf_skb_adjust_room(struct __sk_buff *skb, __s32 delta, __u32 mode, __u64 flags)
{
	must(mode == BPF_ADJ_ROOM_MAC || mode == BPF_ADJ_ROOM_NET, "mode %u", mode);
	must(skb->protocol == be16(TYPE_IPV4) || skb->protocol == be16(TYPE_IPV6), "protocol %x",
	     skb->protocol);
	if (delta < 0)
		return shrink(skb, -delta, mode, flags);
	must(mode == BPF_ADJ_ROOM_MAC && (flags | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6) == ENCAP_FLAGS,
	     "flags %llx", (unsigned long long)flags);
	must(delta <= 0xfff, "%d octets", delta);
	if (flags == ENCAP_FLAGS && rest.tunnelled)
		return -EALREADY;
	if (delta > (__s32)rest.room)
		return -ENOMEM;
	must(flags == ENCAP_FLAGS || rest.tunnelled, "no tunnel, and none is told");
	move_head(skb, ETH_LEN, delta);
	if (flags == ENCAP_FLAGS)
		skb->protocol = be16(TYPE_IPV6);
	return 0;
}

long bpf_skb_store_bytes(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length,
			 __u64 flags)
{
	must(flags == BPF_F_RECOMPUTE_CSUM, "flags %llx", (unsigned long long)flags);
	MUST_BE_INITIALIZED(from, length);
	if (offset > 0xffff || bpf_skb_pull_data(skb, offset + length))
		return -EFAULT;
	memcpy((void *)(long)(skb->data + offset), from, length);
	return 0;
}

/* Wherever the octets are. */
long bpf_skb_load_bytes(struct __sk_buff *skb, __u32 offset, void *to, __u32 length)
{
	__u8 *out = to;
	__u32 i, have = linear(skb);

	if (offset > 0xffff || offset + length > skb->len)
		return -EFAULT;
	for (i = offset; i < offset + length; i++)
		*out++ = i < have ? ((__u8 *)(long)skb->data)[i] : rest.b[rest.from + i - have];
	return 0;
}

/* The kernel forwards packets without their Ethernet header, and conntrack has seen them. */
static struct {
	struct sk_buff packet;
	struct __sk_buff *skb;
} by_kernel;

static void place_forwarded(struct __sk_buff *skb, const struct frame *f, __u32 in_one_piece,
			    __u32 conntrack)
{
	place_skb(skb, f, in_one_piece);
	in_one_piece = linear(skb) > ETH_LEN ? linear(skb) - ETH_LEN : 0;
	by_kernel.skb = skb;
	by_kernel.packet.len = skb->len - ETH_LEN;
	by_kernel.packet.data_len = by_kernel.packet.len - in_one_piece;
	by_kernel.packet.data = (__u8 *)(long)skb->data + ETH_LEN;
	by_kernel.packet._nfct = conntrack;
}

void *bpf_rdonly_cast(const void *of, __u32 type)
{
	(void)type;
	return (void *)of;
}

int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *packet)
{
	must(!flags && (void *)skb == &by_kernel.packet, "flags %llx", (unsigned long long)flags);
	(void)packet;
	return 0;
}

long bpf_dynptr_read(void *to, __u32 length, const struct bpf_dynptr *from, __u32 offset,
		     __u64 flags)
{
	(void)from;
	must(!flags, "flags %llx", (unsigned long long)flags);
	return bpf_skb_load_bytes(by_kernel.skb, ETH_LEN + offset, to, length) ? -E2BIG : 0;
}

/* The first tag stays beside the packet. */
long bpf_skb_vlan_push(struct __sk_buff *skb, __be16 protocol, __u16 tag)
{
	if (skb->vlan_present) {
		move_head(skb, 12, VLAN_LEN);
		st16((void *)(long)(skb->data + 12), be16(TYPE_VLAN));
		st16((void *)(long)(skb->data + 14), be16(skb->vlan_tci));
		skb->protocol = be16(TYPE_VLAN);
	}
	skb->vlan_present = 1;
	skb->vlan_proto = protocol;
	skb->vlan_tci = tag;
	return 0;
}

/* One that is in the packet comes beside it. */
long bpf_skb_vlan_pop(struct __sk_buff *skb)
{
	must(skb->vlan_present, "no tag");
	skb->vlan_present = skb->protocol == be16(TYPE_VLAN);
	if (!skb->vlan_present)
		return 0;
	skb->vlan_tci = be16(ld16((void *)(long)(skb->data + 14)));
	move_head(skb, 12, -VLAN_LEN);
	skb->protocol = ld16((void *)(long)(skb->data + 12));
	return 0;
}

__s64 bpf_csum_update(struct __sk_buff *skb, __u32 sum)
{
	(void)skb;
	(void)sum;
	return -EOPNOTSUPP; /* no sum of a device */
}

long bpf_redirect(__u32 ifindex, __u64 flags)
{
	must(!(flags & ~BPF_F_INGRESS), "flags %llx", (unsigned long long)flags);
	witness.redirected = ifindex;
	return TC_REDIRECT;
}

long bpf_redirect_peer(__u32 ifindex, __u64 flags)
{
	must(!flags, "flags %llx", (unsigned long long)flags);
	return bpf_redirect(ifindex, 0);
}

long bpf_redirect_neigh(__u32 ifindex, struct bpf_redir_neigh *neighbour, int length, __u64 flags)
{
	must(!flags && length == (neighbour ? (int)sizeof(*neighbour) : 0), "flags %llx",
	     (unsigned long long)flags);
	return bpf_redirect(ifindex, 0);
}

__u32 bpf_get_prandom_u32(void)
{
	return now * 0x9e3779b1u;
}

void bpf_spin_lock(struct bpf_spin_lock *lock)
{
	must(!lock->val++, "a lock that is taken is taken again");
}

void bpf_spin_unlock(struct bpf_spin_lock *lock)
{
	must(!--lock->val, "a lock that nobody took is let go");
}

/* Some flows are translated, some tracked, some not known. */
struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 size,
				  struct bpf_ct_opts *options, __u32 options_size)
{
	static struct nf_conn entry;
	__u8 from = tuple->ipv4.saddr >> 24;

	(void)skb;
	must(size == sizeof(tuple->ipv4) || size == sizeof(tuple->ipv6), "a tuple of %u octets",
	     size);
	must(options_size == sizeof(*options) && options->netns_id == CURRENT_NETNS, "options");
	MUST_BE_INITIALIZED(tuple, size);
	if (from & 1)
		return 0;
	entry.status = from & 2 ? SEEN_REPLY : from & 4 ? DESTINATION_NAT : NAT_DONE | SEEN_REPLY;
	rest.held++;
	return &entry;
}

void bpf_ct_release(struct nf_conn *ct)
{
	must(ct && rest.held == 1, "%u entries are held", rest.held);
	rest.held--;
}

#endif
