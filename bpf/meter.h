/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Token buckets (docs/reference/semantics.md section 7): a packet compares two numbers
 * of a cache line that it has anyway; the clock is read, and the rate paid out,
 * only when they meet. Nothing is lost between CPUs: both numbers are exact. */
#ifndef CULVERT_METER_H
#define CULVERT_METER_H

#include "packet.h"

#define METER_TIME_SHIFT 10   /* ns to units of 1024 ns */
#define METER_AHEAD 62500     /* 64 ms: how much later than this CPU's clock another's is */
#define METER_PAYOUT 3906     /* 4 ms */
#define METER_PAYOUT_MIN 512  /* octets: rounding takes up to one of a payment */
#define METER_PAYOUT_MAX 16384

/* bucket: `since` << 32 | `limit`. */
INLINE int meter_below(__u64 bucket, __u32 used)
{
	return (__s32)(used - (__u32)bucket) < 0;
}

/* What `age` is worth at kbit/s, and the time that octets take, rounded up: a
 * unit is many octets at a high rate. */
INLINE __u64 meter_octets(__u64 age, __u64 rate)
{
	return age * rate * 2 / 15625;
}
INLINE __u64 meter_time(__u64 octets, __u64 rate)
{
	return (octets * 15625 + 2 * rate - 1) / (2 * rate);
}

/* How much of the past counts: the burst. A bucket must hold a packet. */
INLINE __u32 meter_window(__u64 rate)
{
	__u64 least = meter_time(METER_PAYOUT_MAX, rate);
	__u32 burst = node_settings.meter_burst;

	return least > burst ? least : burst;
}

/* Octets to pay out after `age`, of which what they are worth is left; 0: none yet.
 * What does not pay the debt lets no packet go, and waits. But it goes on: a TCP whose
 * round trip is shorter than the time between two payments loses all packets of a
 * round trip, and waits for its timer (docs/adr/0026-burst-of-a-rate.md). */
INLINE __u64 meter_earned(__u64 *age, __u64 rate, __u32 debt)
{
	__u64 earned = meter_octets(*age, rate), most;

	if (*age < METER_PAYOUT && (earned < METER_PAYOUT_MIN || earned <= debt))
		return 0;
	if (*age > METER_PAYOUT && earned > METER_PAYOUT_MAX) {
		most = meter_time(METER_PAYOUT_MAX, rate);
		earned = meter_octets(most > METER_PAYOUT ? most : METER_PAYOUT, rate);
	}
	*age = meter_time(earned, rate);
	return earned;
}

/* Packets, at a rate for 1000 s. */
INLINE __u64 meter_earned_packets(__u64 *age, __u64 rate)
{
	__u64 earned = *age * rate / 976562500;

	*age = (earned * 976562500 + rate - 1) / rate;
	return earned;
}

/* Pays the rate out; 1 where a packet may go then. `window`: of packets. */
GLOBAL int meter_pay(__u64 *bucket, __u32 used, __u32 rate, __u32 unit, __u32 window)
{
	__u64 from, to, age, earned;
	__u32 now, since;

	if (!bucket || !rate)
		return 0;
	from = *(volatile __u64 *)bucket;
	if (meter_below(from, used)) /* another CPU was faster */
		return 1;
	/* the clock after the bucket: what another CPU paid meanwhile would be ahead
	 * of it, and as a time that is long gone be paid again */
	now = bpf_ktime_get_ns() >> METER_TIME_SHIFT;
	since = from >> 32;
	if (since - now - 1 < METER_AHEAD)
		return 0;
	if (unit == METER_OCTETS)
		window = meter_window(rate);
	if (now - since > window)
		since = now - window;
	age = now - since;
	earned = unit == METER_PACKETS ? meter_earned_packets(&age, rate)
				       : meter_earned(&age, rate, used - (__u32)from);
	if (!earned)
		return 0;
	to = (__u64)(since + (__u32)age) << 32 | (__u32)((__u32)from + (__u32)earned);
	from = __sync_val_compare_and_swap(bucket, from, to) == from ? to
								     : *(volatile __u64 *)bucket;
	return meter_below(from, used);
}

INLINE int meter_allows(__u64 *bucket, __u32 used, __u32 rate)
{
	return meter_below(*(volatile __u64 *)bucket, used) ||
	       meter_pay(bucket, used, rate, METER_OCTETS, 0);
}

/* A shared meter, which counts what it lets go. */
INLINE int meter_takes(struct meter *m, __u32 octets)
{
	if (!m->rate)
		return 1;
	if (!meter_below(*(volatile __u64 *)&m->bucket, *(volatile __u64 *)&m->used) &&
	    !meter_pay(&m->bucket, *(volatile __u64 *)&m->used, m->rate, m->unit, m->window))
		return 0;
	__sync_fetch_and_add(&m->used, m->unit == METER_PACKETS ? 1 : octets);
	return 1;
}

#endif
