// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

/* libFuzzer's target: one input is the tables, a frame, and one run of the
 * data path, whose result must hold together. */
#include <stdint.h>

#include "frame.h"
#include "lib.h"

/* The input's first octets choose. */
enum mode {
	MODE_LIB = 1,       /* of 16: the pure functions */
	MODE_DISTURBED = 2, /* of 4: anything may stand in the tables */
};

static struct frame frame;

static void describe(void)
{
	__u32 i;

	fprintf(stderr, "ifindex %u, behaviour %u, flavors %u, %u octets:", frame.ifindex, journey.behavior,
		journey.flavors, frame.length);
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

/* How the one journey ended, and that it was counted once. */
static enum reason counted(void)
{
	struct counter *c = VALUE(outcomes, struct counter, 0);
	__u32 i, found = REASON_COUNT, packets = 0;

	for (i = 0; i < REASON_COUNT; i++) {
		packets += c[i].packets;
		if (c[i].packets) {
			found = i;
			must(c[i].bytes == frame.length, "outcome %u: %llu octets of %u", i, c[i].bytes, frame.length);
		} else {
			must(!c[i].bytes, "outcome %u has octets and no packet", i);
		}
	}
	must(packets == 1, "one frame was counted %u times", packets);
	return found;
}

static int expected_verdict(enum reason reason)
{
	switch (reason) {
	case REASON_FORWARDED:
		return journey.redirected ? XDP_REDIRECT : XDP_TX;
	case REASON_PASSED:
		return XDP_PASS;
	case REASON_REPLIED:
		return XDP_TX;
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
	if (journey.asked_next_hop)
		return;
	if (journey.flavors & FLAVOR_USP && length < frame.length)
		return;
	must(unchanged(out, length), "passed after a change: %u octets became %u", frame.length, length);
}

/* What leaves is one whole packet: no padding, lengths that agree. */
static void check_sent(const __u8 *out, __u32 length)
{
	__u32 l3 = ETH_LEN, have, said;
	__u16 type = be16(ld16(out + 12));

	if (journey.behavior == END_DX2)
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
		must(type == TYPE_IPV6 && out[l3] >> 4 == 6, "type %04x, version %u", type, out[l3] >> 4);
	}
	must(said == have, "a packet of %u octets says %u", have, said);
}

/* The daemon gets the frame as it came. */
static void check_punt(int disturbed)
{
	struct punt *r = &journey.punt;

	must(journey.punts <= 1, "%u records", journey.punts);
	if (!journey.punts)
		return;
	must(r->kind > PUNT_NONE && r->kind <= PUNT_ERROR_INDICATION, "kind %u", r->kind);
	must(r->length <= PUNT_DATA && r->length <= frame.length, "%u octets of %u", r->length, frame.length);
	must(r->ifindex == frame.ifindex, "ifindex %u", r->ifindex);
	MUST_BE_INITIALIZED(r->data, r->length);
	if (!disturbed)
		must(!memcmp(r->data, frame.b, r->length), "kind %u: quoted after a change", r->kind);
}

static void journey_of(struct input *in, int disturbed)
{
	__u32 headroom = rarely(in, 16) ? FRAME_META + 4 * pick(in, 32) : HEADROOM;
	struct xdp_md ctx = { .ingress_ifindex = frame.ifindex };
	__u32 attached = VALUE(port, struct port, frame.ifindex)->flags & PORT_ATTACHED;
	enum reason reason;
	__u32 length;
	__u8 *out;
	int verdict;

	memset(&journey, 0, sizeof(journey));
	now = take16(in) * 1000000ull;
	place(&ctx, frame.b, frame.length, headroom);
	verdict = culvert_xdp(&ctx);
	out = (__u8 *)(long)ctx.data;
	length = ctx.data_end - ctx.data;

	must(length >= ETH_LEN || length == frame.length, "a frame of %u octets", length);
	if (!attached) {
		must(verdict == XDP_PASS && unchanged(out, length), "not ours, verdict %d", verdict);
		return;
	}
	reason = counted();
	must(verdict == expected_verdict(reason), "reason %u, verdict %d", reason, verdict);
	check_punt(disturbed);
	if (verdict == XDP_DROP)
		return;
	MUST_BE_INITIALIZED(out, length);
	if (disturbed)
		return;
	if (verdict == XDP_PASS)
		check_passed(out, length);
	else
		check_sent(out, length);
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
	journey_of(&in, disturbed);
	return 0;
}

#pragma clang attribute pop
