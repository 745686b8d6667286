/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Workers: worker n has the queues q of each interface with q % workers == n, and sends by
 * the first of them. Who works on a packet is what receive-side scaling says. */
#ifndef CULVERT_SOFT_WORK_H
#define CULVERT_SOFT_WORK_H

#include <linux/if_packet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "sockets.h"

#define FLUSH_NS 100000000ull
#define IDLE_ROUNDS 200 /* without a packet, before a worker sleeps */
#define SLEEP_MS 50
#define HURRY -20 /* what others do meanwhile makes queues run over */
#define DRAIN_US 20000 /* what is on its way when no more comes */

struct job {
	pthread_t thread;
	__u32 number;
	struct socket sockets[SOFT_PORTS * SOFT_QUEUES];
	__u32 count;
	struct memory memory;
	struct result result;
};

static struct job *jobs;

/* ---- one frame ---- */

static struct socket *socket_of(struct job *j, __u32 ifindex)
{
	__u32 i;

	for (i = 0; i < j->count; i++)
		if (j->sockets[i].ifindex == ifindex)
			return &j->sockets[i];
	return 0;
}

/* By an interface that has no socket of ours. */
static int send_elsewhere(const void *frame, __u32 length, __u32 ifindex)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = ifindex };

	return sendto(node.raw, frame, length, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) <
	       0;
}

/* 1 where the frame is in a queue, 0 where it may be used again. */
static int dispatch(struct job *j, struct xdp_md *md, int verdict)
{
	struct result *r = &self->result;
	void *data = (void *)(long)md->data;
	__u32 length = md->data_end - md->data;
	struct socket *to;

	if (verdict == XDP_PASS) {
		if (pass_up(data, length, md->ingress_ifindex))
			r->not_passed++;
		else
			r->passed++;
		return 0;
	}
	if (verdict != XDP_REDIRECT && verdict != XDP_TX) {
		r->dropped++;
		return 0;
	}
	to = socket_of(j, self->egress);
	if (to ? enqueue(to, &j->memory, (__u8 *)data - j->memory.area, length)
	       : send_elsewhere(data, length, self->egress)) {
		r->no_room++;
		return 0;
	}
	r->sent++;
	return !!to;
}

static void take_frame(struct job *j, struct socket *s, struct xdp_desc *d)
{
	__u64 chunk = (__u64)j->memory.area + (d->addr & ~(CHUNK - 1ull));
	struct xdp_md md = {
		.data = (__u64)j->memory.area + d->addr,
		.ingress_ifindex = s->ifindex,
		.rx_queue_index = s->queue,
	};
	int verdict;

	md.data_meta = md.data;
	md.data_end = md.data + d->len;
	verdict = handle(&md, md.data - FRAME_HEADROOM, chunk + CHUNK - FRAME_SHARED);
	if (!dispatch(j, &md, verdict))
		free_frame(&j->memory, d->addr);
}

/* ---- one worker ---- */

/* How many frames there were. */
static __u32 take_frames(struct job *j, struct socket *s)
{
	__u32 ready = load_acquire(s->rx.producer) - s->rx.mine, i;

	if (ready > BATCH)
		ready = BATCH;
	for (i = 0; i < ready && i < 4; i++)
		__builtin_prefetch(j->memory.area + descriptor_at(&s->rx, s->rx.mine + i)->addr);
	for (i = 0; i < ready; i++) {
		__builtin_prefetch(j->memory.area +
				   descriptor_at(&s->rx, s->rx.mine + i + 4)->addr %
					   j->memory.size);
		take_frame(j, s, descriptor_at(&s->rx, s->rx.mine + i));
	}
	if (!ready)
		return 0;
	s->rx.mine += ready;
	store_release(s->rx.consumer, s->rx.mine);
	self->result.received += ready;
	return ready;
}

static __u32 work_once(struct job *j)
{
	__u32 i, frames = 0;

	for (i = 0; i < j->count; i++)
		frames += take_frames(j, &j->sockets[i]);
	for (i = 0; i < j->count; i++) {
		send_waiting(&j->sockets[i], &j->memory);
		reap(&j->sockets[i], &j->memory);
		refill(&j->sockets[i], &j->memory);
	}
	return frames;
}

/* There was nothing: drivers that poll only when asked are asked. */
static void idle(struct job *j, __u32 rounds)
{
	struct pollfd wait[SOFT_PORTS * SOFT_QUEUES];
	__u32 i;

	if (node.spin || rounds < IDLE_ROUNDS) {
		for (i = 0; i < j->count; i++)
			recvfrom(j->sockets[i].fd, 0, 0, MSG_DONTWAIT, 0, 0);
		return;
	}
	for (i = 0; i < j->count; i++)
		wait[i] = (struct pollfd){ .fd = j->sockets[i].fd, .events = POLLIN };
	poll(wait, j->count, SLEEP_MS);
}

static void *work(void *argument)
{
	struct job *j = argument;
	__u64 now, flushed = 0;
	__u32 rounds = 0;

	self = new_worker();
	setpriority(PRIO_PROCESS, 0, HURRY);
	while (!node.drained) {
		now = clock_now();
		begin_batch(now);
		if (now - flushed > FLUSH_NS) {
			flush_counters();
			flushed = now;
		}
		if (work_once(j))
			rounds = 0;
		else
			idle(j, rounds++);
	}
	flush_counters();
	j->result = self->result;
	return 0;
}

/* ---- all of them ---- */

static void open_job(struct job *j, __u32 number)
{
	__u32 i, q, slot;

	j->number = number;
	for (i = 0; i < node.count; i++)
		j->count += (node.interfaces[i].queues - number + node.workers - 1) / node.workers;
	make_memory(&j->memory, j->count);
	j->count = 0;
	for (i = 0; i < node.count; i++)
		for (q = number; q < node.interfaces[i].queues; q += node.workers) {
			struct socket *s = &j->sockets[j->count++];

			s->ifindex = node.interfaces[i].ifindex;
			s->queue = q;
			open_socket(s, &j->memory, s == j->sockets ? -1 : j->sockets[0].fd);
			refill(s, &j->memory);
			slot = i * SOFT_QUEUES + q;
			must(!bpf_store(node.sockets, &slot, &s->fd, BPF_ANY),
			     "give packets of queue %u of %s to their socket", q,
			     node.interfaces[i].name);
		}
}

static void say_ready(void)
{
	__u32 w, i;

	printf("{\"workers\":%u,\"queues\":[", node.workers);
	for (w = 0; w < node.workers; w++)
		for (i = 0; i < jobs[w].count; i++) {
			struct socket *s = &jobs[w].sockets[i];
			char name[IF_NAMESIZE] = "?";

			printf("%s{\"interface\":\"%s\",\"queue\":%u,\"worker\":%u,\"zero_copy\":%"
			       "s}",
			       w || i ? "," : "", if_indextoname(s->ifindex, name), s->queue, w,
			       s->zero_copy ? "true" : "false");
		}
	printf("]}\n");
	must(!fflush(stdout), "write");
}

/* What the kernel dropped before a socket had it. */
static __u64 dropped_before(void)
{
	__u64 sum = 0;
	__u32 w, i;

	for (w = 0; w < node.workers; w++)
		for (i = 0; i < jobs[w].count; i++) {
			struct xdp_statistics s = {};
			socklen_t size = sizeof(s);

			getsockopt(jobs[w].sockets[i].fd, SOL_XDP, XDP_STATISTICS, &s, &size);
			sum += s.rx_dropped + s.rx_ring_full + s.rx_fill_ring_empty_descs;
		}
	return sum;
}

static void say_result(void)
{
	struct result sum = {};
	__u32 w;

	for (w = 0; w < node.workers; w++) {
		struct result *r = &jobs[w].result;

		sum.received += r->received;
		sum.sent += r->sent;
		sum.passed += r->passed;
		sum.dropped += r->dropped;
		sum.no_room += r->no_room;
		sum.not_passed += r->not_passed;
		sum.not_handed_up += r->not_handed_up;
	}
	printf("{\"received\":%llu,\"sent\":%llu,\"passed\":%llu,\"dropped\":%llu,\"no_room\":%llu,"
	       "\"not_passed\":%llu,\"not_handed_up\":%llu,\"not_received\":%llu}\n",
	       sum.received, sum.sent, sum.passed, sum.dropped, sum.no_room, sum.not_passed,
	       sum.not_handed_up, dropped_before());
	must(!fflush(stdout), "write");
}

static void stop(int signal)
{
	(void)signal;
	node.stop = 1;
}

/* Until a signal comes, or standard input ends: who started this is gone. */
static void wait_for_the_end(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char octet;

	while (!node.stop) {
		if (poll(&in, 1, SLEEP_MS) > 0 && read(0, &octet, 1) <= 0)
			node.stop = 1;
	}
}

static void run_node(void)
{
	__u32 w;

	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	signal(SIGPIPE, SIG_IGN);
	node.raw = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	must(node.raw >= 0, "make a packet socket");
	jobs = reserve_memory(node.workers * sizeof(*jobs));
	for (w = 0; w < node.workers; w++)
		open_job(&jobs[w], w);
	for (w = 0; w < node.workers; w++)
		must(!pthread_create(&jobs[w].thread, 0, work, &jobs[w]), "start a thread");
	attach_all();
	say_ready();
	wait_for_the_end();
	detach_all();
	usleep(DRAIN_US);
	node.drained = 1;
	for (w = 0; w < node.workers; w++)
		pthread_join(jobs[w].thread, 0);
	say_result();
}

#endif
