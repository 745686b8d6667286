/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* AF_XDP: a socket is a queue of an interface. Those of one worker share their memory, so
 * that a frame leaves from where it was received. */
#ifndef CULVERT_SOFT_SOCKETS_H
#define CULVERT_SOFT_SOCKETS_H

#include <linux/if_xdp.h>
#include <net/if.h>
#include <sys/socket.h>

#include "attach.h"
#include "frames.h"

#define RING 2048   /* descriptors */
#define FRAMES 4096 /* for each socket: a full ring to receive into, another one to send */
#define CHUNK 4096
#define BATCH 64
#define BUSY_POLL_US 20

#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif

struct ring {
	__u32 *producer, *consumer;
	void *entries;
	__u32 mine; /* what this end has done, told or not */
};

struct socket {
	int fd, zero_copy;
	__u32 ifindex, queue;
	struct ring rx, tx, fill, done;
	__u32 waiting; /* to be sent, and not told */
};

static __u32 load_acquire(__u32 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store_release(__u32 *p, __u32 v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static __u64 *address_at(struct ring *r, __u32 i)
{
	return (__u64 *)r->entries + i % RING;
}

static struct xdp_desc *descriptor_at(struct ring *r, __u32 i)
{
	return (struct xdp_desc *)r->entries + i % RING;
}

/* ---- memory ---- */

/* Frames that nobody uses. */
struct memory {
	__u8 *area;
	__u64 size;
	__u64 *free;
	__u32 free_count;
};

static void make_memory(struct memory *m, __u32 sockets)
{
	__u32 i;

	m->size = (__u64)sockets * FRAMES * CHUNK;
	m->area = low_memory(m->size);
	m->free = reserve_memory(sockets * FRAMES * sizeof(__u64));
	for (i = 0; i < sockets * FRAMES; i++)
		m->free[m->free_count++] = (__u64)i * CHUNK;
}

static void free_frame(struct memory *m, __u64 address)
{
	m->free[m->free_count++] = address & ~(CHUNK - 1ull);
}

/* ---- set-up ---- */

static void set(int fd, int level, int name, int value, const char *what)
{
	must(!setsockopt(fd, level, name, &value, sizeof(value)), "%s", what);
}

static void map_ring(int fd, struct ring *r, struct xdp_ring_offset *at, __u64 page, __u32 entry)
{
	size_t size = at->desc + (size_t)RING * entry;
	__u8 *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);

	must(p != MAP_FAILED, "map a ring of a socket");
	r->producer = (void *)(p + at->producer);
	r->consumer = (void *)(p + at->consumer);
	r->entries = p + at->desc;
}

static void make_rings(struct socket *s)
{
	struct xdp_mmap_offsets at;
	socklen_t size = sizeof(at);

	set(s->fd, SOL_XDP, XDP_UMEM_FILL_RING, RING, "size of a fill ring");
	set(s->fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, RING, "size of a completion ring");
	set(s->fd, SOL_XDP, XDP_RX_RING, RING, "size of a ring to receive");
	set(s->fd, SOL_XDP, XDP_TX_RING, RING, "size of a ring to send");
	must(!getsockopt(s->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size), "offsets of rings");
	map_ring(s->fd, &s->rx, &at.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc));
	map_ring(s->fd, &s->tx, &at.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc));
	map_ring(s->fd, &s->fill, &at.fr, XDP_UMEM_PGOFF_FILL_RING, sizeof(__u64));
	map_ring(s->fd, &s->done, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, sizeof(__u64));
}

/* The kernel or the driver polls when this program asks, where they can. */
static void ask_for_busy_poll(int fd)
{
	int prefer = 1, us = BUSY_POLL_US, budget = BATCH;

	setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &prefer, sizeof(prefer));
	setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof(us));
	setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof(budget));
}

/* Without copies where the driver can, else with them: the kernel tries, for the first
 * socket of a worker, and the others have its mode. `shared` as below. */
static void bind_socket(struct socket *s, int shared)
{
	struct sockaddr_xdp to = {
		.sxdp_family = AF_XDP,
		.sxdp_ifindex = s->ifindex,
		.sxdp_queue_id = s->queue,
		.sxdp_shared_umem_fd = shared < 0 ? 0 : shared,
		.sxdp_flags = shared >= 0 ? XDP_SHARED_UMEM
			      : node.copy ? XDP_COPY
					  : 0,
	};
	struct xdp_options options = {};
	socklen_t size = sizeof(options);
	char name[IF_NAMESIZE] = "?";

	must(!bind(s->fd, (struct sockaddr *)&to, sizeof(to)), "bind to queue %u of %s", s->queue,
	     if_indextoname(s->ifindex, name));
	if (!getsockopt(s->fd, SOL_XDP, XDP_OPTIONS, &options, &size))
		s->zero_copy = !!(options.flags & XDP_OPTIONS_ZEROCOPY);
}

/* `shared`: a socket whose memory this one uses, or -1. */
static void open_socket(struct socket *s, struct memory *m, int shared)
{
	struct xdp_umem_reg reg = { .addr = (__u64)m->area,
				    .len = m->size,
				    .chunk_size = CHUNK,
				    .headroom = FRAME_HEADROOM };
	int room = 1 << 26;

	s->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	must(s->fd >= 0, "make a socket");
	if (shared < 0)
		must(!setsockopt(s->fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof(reg)),
		     "give the kernel memory for frames");
	make_rings(s);
	setsockopt(s->fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	ask_for_busy_poll(s->fd);
	bind_socket(s, shared);
}

/* ---- frames in and out ---- */

/* Gives the kernel frames to receive into. */
static void refill(struct socket *s, struct memory *m)
{
	__u32 room = RING - (s->fill.mine - load_acquire(s->fill.consumer));

	if (room < BATCH)
		return;
	for (; room && m->free_count; room--)
		*address_at(&s->fill, s->fill.mine++) = m->free[--m->free_count];
	store_release(s->fill.producer, s->fill.mine);
}

/* Takes back frames that were sent. */
static void reap(struct socket *s, struct memory *m)
{
	__u32 ready = load_acquire(s->done.producer);

	for (; s->done.mine != ready; s->done.mine++)
		free_frame(m, *address_at(&s->done, s->done.mine));
	store_release(s->done.consumer, s->done.mine);
}

/* Has the kernel send what waits: a call sends some. */
static void send_waiting(struct socket *s, struct memory *m)
{
	__u32 tries;

	if (!s->waiting)
		return;
	store_release(s->tx.producer, s->tx.mine);
	for (tries = 0; tries < RING && load_acquire(s->tx.consumer) != s->tx.mine; tries++) {
		if (sendto(s->fd, 0, 0, MSG_DONTWAIT, 0, 0) < 0 && errno != EAGAIN &&
		    errno != EBUSY && errno != ENOBUFS)
			break;
		reap(s, m);
	}
	s->waiting = 0;
}

/* 0, or -1 where the queue is full and stays so. */
static int enqueue(struct socket *s, struct memory *m, __u64 address, __u32 length)
{
	if (s->tx.mine - load_acquire(s->tx.consumer) == RING) {
		send_waiting(s, m);
		if (s->tx.mine - load_acquire(s->tx.consumer) == RING)
			return -1;
	}
	*descriptor_at(&s->tx, s->tx.mine++) = (struct xdp_desc){ .addr = address, .len = length };
	s->waiting++;
	return 0;
}

#endif
