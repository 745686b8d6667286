// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

/* libFuzzer's target: one input is the tables, a frame, and one run of the
 * data path, whose result must hold together. */
#include <stdint.h>

#include "lib.h"
#include "skb.h"

/* The input's first octets choose. */
enum mode {
	MODE_LIB = 1,       /* of 16: the pure functions */
	MODE_DISTURBED = 2, /* of 4: anything may stand in the tables */
	MODE_PODS = 3,      /* of 4: the programs for pods */
};

static struct frame frame;

static void describe(void)
{
	__u32 i;

	fprintf(stderr, "ifindex %u, behaviour %u, flavors %u, %u octets:", frame.ifindex,
		witness.behavior, witness.flavors, frame.length);
	for (i = 0; i < frame.length && i < 128; i++)
		fprintf(stderr, "%s%02x", i % 16 ? " " : "\n", frame.b[i]);
	fputc('\n', stderr);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	make_maps();
	make_buffer();
	return 0;
}

/* how the one journey ended, and that it was counted once, as `n` packets. */
static enum reason counted(__u32 n, __u32 octets)
{
	struct counter *c = VALUE(outcomes, struct counter, 0);
	__u32 i, found = REASON_COUNT, packets = 0;

	for (i = 0; i < REASON_COUNT; i++) {
		packets += c[i].packets;
		if (c[i].packets) {
			found = i;
			must(c[i].bytes == octets, "outcome %u: %llu octets of %u", i, c[i].bytes,
			     octets);
		} else {
			must(!c[i].bytes, "outcome %u has octets and no packet", i);
		}
	}
	must(packets == n, "%u packets were counted as %u", n, packets);
	return found;
}

static int expected_verdict(enum reason reason)
{
	switch (reason) {
	case REASON_FORWARDED:
	case REASON_REPLIED:
		return witness.sent ? XDP_REDIRECT : XDP_TX;
	case REASON_PASSED:
		return XDP_PASS;
	default:
		return XDP_DROP;
	}
}

static int unchanged(const __u8 *out, __u32 length)
{
	return length == frame.length && !memcmp(out, frame.b, length);
}

/* Only a finished packet, or one without its last SRH (USP), reaches the
 * kernel otherwise than it came. */
static void check_passed(const __u8 *out, __u32 length)
{
	if (witness.asked_next_hop || VALUE(journey_state, struct packet, 0)->turn)
		return;
	if (witness.flavors & FLAVOR_USP && length < frame.length)
		return;
	must(unchanged(out, length), "passed after a change: %u octets became %u", frame.length,
	     length);
}

/* What leaves is one whole packet: lengths that agree, and no more behind it than padding. */
static void check_sent(const __u8 *out, __u32 length)
{
	__u32 l3 = ETH_LEN, have, said;
	__u16 type = be16(ld16(out + 12));

	if (witness.behavior == END_DX2 || witness.link)
		return;
	for (; (type == TYPE_VLAN || type == TYPE_QINQ) && l3 + 4 < length; l3 += VLAN_LEN)
		type = be16(ld16(out + l3 + 2));
	have = length - l3;
	must(have >= 20, "%u octets behind the Ethernet header", have);
	if (type == TYPE_IPV4) {
		said = be16(ld16(out + l3 + 2));
		must(out[l3] >> 4 == 4, "version %u", out[l3] >> 4);
	} else {
		said = have < 40 ? 0 : 40 + be16(ld16(out + l3 + 4));
		must(type == TYPE_IPV6 && out[l3] >> 4 == 6, "type %04x, version %u", type,
		     out[l3] >> 4);
	}
	must(said <= have && (said == have || may_stay_behind(have - said, frame.length)),
	     "a packet of %u octets says %u", have, said);
}

/* The daemon gets the frame as it came, or as it would leave. */
static void check_punt(int disturbed)
{
	struct punt *r = &witness.punt;

	must(witness.punts <= 1, "%u records", witness.punts);
	if (!witness.punts)
		return;
	must(r->kind > PUNT_NONE && r->kind <= PUNT_FRAGMENT_OUTER && r->kind != PUNT_DUPLICATE,
	     "kind %u", r->kind);
	if (r->kind == PUNT_FRAGMENT_OUTER) {
		must(r->length <= PUNT_DATA && r->length > r->info, "%u octets for %u", r->length,
		     r->info);
		MUST_BE_INITIALIZED(r->data, r->length);
		if (!disturbed)
			check_sent(r->data, r->length);
		return;
	}
	must(r->length <= PUNT_DATA && (r->turn || r->length <= frame.length), "%u octets of %u",
	     r->length, frame.length);
	must(r->ifindex == frame.ifindex, "ifindex %u", r->ifindex);
	MUST_BE_INITIALIZED(r->data, r->length);
	if (!disturbed && !r->turn)
		must(!memcmp(r->data, frame.b, r->length), "kind %u: quoted after a change",
		     r->kind);
}

/* What a run came to. */
struct result {
	enum reason reason;
	int verdict;
	__u32 redirected, length;
	struct counter sids, lists, tunnels;
	__u8 out[BUFFER];
};

static struct result first, second;

static struct counter sum(void *map)
{
	struct native_map *m = map_of(map);
	struct counter total = {};
	__u32 i;

	for (i = 0; i < m->max_entries; i++) {
		struct counter *c = (void *)(m->values + i * m->value_size);

		total.packets += c->packets;
		total.bytes += c->bytes;
	}
	return total;
}

/* What tunnels and rules counted since the world was made. */
static struct counter sum_tunnels(void)
{
	struct counter total = {};
	__u32 i;

	for (i = 1; i < TUNNELS; i++) {
		struct counter c = volume_count(&VALUE(tunnel, struct tunnel, i)->volume);

		total.packets += c.packets - volume_start(i).packets;
		total.bytes += c.bytes - volume_start(i).bytes;
	}
	for (i = 1; i < PDRS; i++) {
		struct counter c = volume_count(&VALUE(pdr, struct pdr, i)->volume);

		total.packets += c.packets - volume_start(i).packets;
		total.bytes += c.bytes - volume_start(i).bytes;
	}
	return total;
}

/* So that a second run finds what the first one found. */
static void forget_run(void)
{
	memset(VALUE(outcomes, __u8, 0), 0, REASON_COUNT * sizeof(struct counter));
	memset(VALUE(errors_left, __u8, 0), 0, 3 * sizeof(struct errors_left));
	map_of(&limit_by_group)->count = 0;
	make_stations();
	memset(&witness, 0, sizeof(witness));
}

static void check_run(struct result *r, int disturbed)
{
	if (!(VALUE(port, struct port, frame.ifindex)->flags & PORT_ATTACHED)) {
		must(r->verdict == XDP_PASS && unchanged(r->out, r->length), "not ours, verdict %d",
		     r->verdict);
		r->reason = REASON_PASSED; /* and not counted */
		return;
	}
	r->reason = counted(1, frame.length);
	must(r->verdict == expected_verdict(r->reason), "reason %u, verdict %d", r->reason,
	     r->verdict);
	check_punt(disturbed);
	if (r->verdict == XDP_DROP)
		return;
	MUST_BE_INITIALIZED(r->out, r->length);
	if (disturbed)
		return;
	if (r->verdict == XDP_PASS)
		check_passed(r->out, r->length);
	else
		check_sent(r->out, r->length);
}

static __u64 on_their_way(void)
{
	__u64 n = 0;
	__u32 i;

	for (i = 0; i < SPREAD_BUCKETS + SPREAD_FLOW_BUCKETS; i++) {
		struct spread_bucket *b = VALUE(spread_bucket, struct spread_bucket, i);

		n += (b->word & SPREAD_COUNT) - b->done;
	}
	return n;
}

/* By a CPU's queue, where there is one for the packet: it must fare as without. */
static int run_spread(struct xdp_md *ctx, int disturbed)
{
	int verdict = culvert_spread(ctx);

	if (witness.stays) {
		must(unchanged((void *)(long)ctx->data, ctx->data_end - ctx->data),
		     "stays after a change");
		verdict = culvert_xdp(ctx);
	} else if (witness.queued) {
		must(verdict == XDP_REDIRECT, "queued, verdict %d", verdict);
		verdict = culvert_cpu(ctx);
	}
	must(disturbed || !on_their_way(), "packets were counted in, and not out");
	return verdict;
}

static void run_once(struct result *r, __u32 headroom, __u64 time, int disturbed, int spread)
{
	struct xdp_md ctx = { .ingress_ifindex = frame.ifindex };

	forget_run();
	begun = time;
	place(&ctx, frame.b, frame.length, headroom);
	r->verdict = spread ? run_spread(&ctx, disturbed) : culvert_xdp(&ctx);
	r->length = ctx.data_end - ctx.data;
	r->redirected = witness.redirected;
	must(r->length >= ETH_LEN || r->length == frame.length, "a frame of %u octets", r->length);
	must(!reserved, "a record was not submitted");
	memcpy(r->out, (void *)(long)ctx.data, r->length);
	check_run(r, disturbed);
}

/* The second packet of a flow finds the caches filled, and must fare as the
 * first. The counters hold both. */
static void check_again(void)
{
	must(first.reason == second.reason && first.verdict == second.verdict, "reason %u, then %u",
	     first.reason, second.reason);
	must(first.redirected == second.redirected, "sent to %u, then to %u", first.redirected,
	     second.redirected);
	must(2 * first.sids.packets == second.sids.packets &&
		     2 * first.sids.bytes == second.sids.bytes,
	     "SIDs count %llu, then %llu octets", first.sids.bytes, second.sids.bytes);
	must(2 * first.lists.packets == second.lists.packets &&
		     2 * first.lists.bytes == second.lists.bytes,
	     "lists count %llu, then %llu octets", first.lists.bytes, second.lists.bytes);
	must(2 * first.tunnels.packets == second.tunnels.packets &&
		     2 * first.tunnels.bytes == second.tunnels.bytes,
	     "tunnels count %llu, then %llu octets", first.tunnels.bytes, second.tunnels.bytes);
	if (first.verdict == XDP_DROP)
		return;
	must(first.length == second.length && !memcmp(first.out, second.out, first.length),
	     "%u octets, then %u or others", first.length, second.length);
}

/* The first one filled what an interface's fragments may take of the ring. */
static int took_last_room(void)
{
	return first.reason == REASON_SLOW_PATH && second.reason == REASON_SLOW_PATH_FULL;
}

static void run_twice(struct input *in, int disturbed)
{
	__u32 headroom = rarely(in, 16) ? FRAME_META + 4 * pick(in, 32) : HEADROOM;
	/* late enough for what rates pay out at once, and never back */
	__u64 time = (1 + take16(in)) * 1000000ull;

	now = time;
	run_once(&first, headroom, time, disturbed, disturbed && pick(in, 2));
	if (disturbed)
		return;
	first.sids = sum(&sid_counter);
	first.lists = sum(&list_counter);
	first.tunnels = sum_tunnels();
	run_once(&second, headroom, time, 0, 1);
	second.sids = sum(&sid_counter);
	second.lists = sum(&list_counter);
	second.tunnels = sum_tunnels();
	if (second.reason != REASON_QUEUE_FULL && !took_last_room())
		check_again();
}

/* ---- pods' programs ---- */

/* The packet as the kernel would have it then. */
static void whole_skb(struct __sk_buff *skb, struct result *r)
{
	r->length = skb->len;
	must(skb->len == linear(skb) + rest.to - rest.from && skb->len <= BUFFER, "%u octets",
	     skb->len);
	memcpy(r->out, (void *)(long)skb->data, linear(skb));
	memcpy(r->out + linear(skb), rest.b + rest.from, rest.to - rest.from);
}

static void check_skb(struct __sk_buff *skb, struct result *r, __u32 length, int pod_program)
{
	static const int verdicts[] = {
		[REASON_FORWARDED] = TC_REDIRECT, [REASON_PASSED] = TC_NEXT
	};
	int at_home = r->reason == REASON_FORWARDED || r->reason == REASON_PASSED;
	__u32 l3 = be16(ld16(r->out + 12)) == TYPE_VLAN ? ETH_LEN + VLAN_LEN : ETH_LEN;
	__u16 type;

	must(r->verdict == (at_home ? verdicts[r->reason] : TC_DROP), "reason %u, verdict %d",
	     r->reason, r->verdict);
	must(!rest.held && !witness.punts, "%u entries of conntrack, %u records", rest.held,
	     witness.punts);
	if (!at_home)
		return;
	MUST_BE_INITIALIZED(r->out, r->length);
	if (r->reason == REASON_PASSED && pod_program)
		must(r->length == length && !memcmp(r->out, rest.b, length),
		     "passed after a change");
	if (r->reason == REASON_PASSED)
		return;
	type = be16(ld16(r->out + l3 - 2));
	if (type == TYPE_IPV4)
		must(be16(ld16(r->out + l3 + 2)) <= r->length - l3, "IPv4 of %u octets",
		     r->length - l3);
	else
		must(40u + be16(ld16(r->out + l3 + 4)) <= r->length - l3, "IPv6 of %u octets",
		     r->length - l3);
	must(r->out[l3] >> 4 == (type == TYPE_IPV4 ? 4 : 6), "version %u", r->out[l3] >> 4);
	must(skb->protocol == be16(l3 > ETH_LEN ? TYPE_VLAN : type),
	     "protocol %x of a packet of %x", skb->protocol, type);
}

static void run_skb(struct result *r, struct __sk_buff *skb, __u32 in_one_piece, int pod_program,
		    int disturbed)
{
	__u32 packets = skb->gso_segs ? skb->gso_segs : 1, length;

	forget_run();
	place_skb(skb, &frame, in_one_piece);
	length = skb->len;
	r->verdict = pod_program ? culvert_pod(skb) : culvert_uplink(skb);
	r->redirected = witness.redirected;
	whole_skb(skb, r);
	if (disturbed)
		return;
	r->reason = counted(packets, length);
	check_skb(skb, r, length, pod_program);
}

/* What the kernel forwards: the same answer twice, and one count if it is no. */
static void run_forward(struct input *in, int disturbed)
{
	struct net_device devices[2] = { { pick(in, PORTS) }, { pick(in, PORTS) } };
	struct nf_hook_state state = { .in = devices, .out = devices + 1 };
	struct __sk_buff skb = { 0 };
	struct bpf_nf_ctx ctx = { &state, &by_kernel.packet };
	__u32 in_one_piece = take16(in), conntrack = take8(in), i;
	int verdict[2];

	state.pf = be16(ld16(frame.b + 12)) == TYPE_IPV4 ? NFPROTO_IPV4 : 10;
	begun = (1 + take16(in)) * 1000000ull;
	for (i = 0; i < 2; i++) {
		forget_run();
		place_forwarded(&skb, &frame, in_one_piece, conntrack);
		verdict[i] = culvert_forward(&ctx);
		must(verdict[i] == NF_ACCEPT || verdict[i] == NF_DROP, "verdict %d", verdict[i]);
		if (verdict[i] == NF_DROP && !disturbed)
			counted(1, by_kernel.packet.len);
	}
	must(disturbed || verdict[0] == verdict[1], "verdict %d, then %d", verdict[0], verdict[1]);
}

static void run_pods(struct input *in, int disturbed)
{
	__u32 in_one_piece = ETH_LEN + (pick(in, 4) ? take8(in) : take16(in)),
	      program = pick(in, 2);
	struct __sk_buff skb = { .ifindex = frame.ifindex,
				 .pkt_type = rarely(in, 8) ? pick(in, 4) : HOST_PACKET };

	if (frame.length < ETH_LEN + VLAN_LEN)
		return; /* the kernel has none of these */
	if (rarely(in, 4)) {
		run_forward(in, disturbed);
		return;
	}
	skb.gso_size = pick(in, 4) ? 0 : take16(in);
	skb.gso_segs = skb.gso_size ? 1 + pick(in, 64) : 0;
	rest.room = rarely(in, 16) ? pick(in, 64) : HEADROOM;
	rest.held = 0;
	rest.tunnelled = rarely(in, 4);
	begun = (1 + take16(in)) * 1000000ull;
	first.reason = second.reason = REASON_PASSED;
	struct __sk_buff again = skb;

	run_skb(&first, &skb, in_one_piece, program, disturbed);
	if (disturbed)
		return;
	run_skb(&second, &again, in_one_piece, program, 0);
	must(first.reason == second.reason && first.verdict == second.verdict, "reason %u, then %u",
	     first.reason, second.reason);
	must(first.redirected == second.redirected, "sent to %u, then to %u", first.redirected,
	     second.redirected);
	if (first.verdict != TC_DROP)
		must(first.length == second.length && !memcmp(first.out, second.out, first.length),
		     "another packet the second time");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = input_of(data, size);
	__u32 choice = take8(&in);
	int disturbed = choice % 4 == MODE_DISTURBED;

	if (choice / 4 % 16 == MODE_LIB)
		check_lib(&in);
	make_world(take8(&in));
	make_frame(&in, &frame);
	if (disturbed)
		disturb_world(&in);
	if (choice / 64 == MODE_PODS)
		run_pods(&in, disturbed);
	else
		run_twice(&in, disturbed);
	check_walk(&in, disturbed);
	return 0;
}

#pragma clang attribute pop
