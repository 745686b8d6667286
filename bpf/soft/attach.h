/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The interfaces of the daemon: soft_receive in the place of what they run, and back. */
#ifndef CULVERT_SOFT_ATTACH_H
#define CULVERT_SOFT_ATTACH_H

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "calls.h"

#define MAX_WORKERS SOFT_QUEUES

struct interface {
	const char *name;
	__u32 ifindex, queues, senders; /* queues to receive from, and to send to */
	int link;
};

static struct {
	const char *pins;
	struct interface interfaces[SOFT_PORTS];
	__u32 count, workers;
	int sockets, first, before, receive; /* of kernel.c */
	int raw;        /* a packet socket for other interfaces */
	int spin, copy;
	volatile sig_atomic_t stop, drained;
} node = { .sockets = -1, .first = -1, .before = -1, .receive = -1 };

static void ask_for_queues(struct interface *i)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ifreq request = { .ifr_data = (void *)&channels };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	must(fd >= 0, "make a socket");
	memcpy(request.ifr_name, i->name, strnlen(i->name, IF_NAMESIZE - 1));
	i->queues = i->senders = 1; /* of a driver that does not say */
	if (!ioctl(fd, SIOCETHTOOL, &request)) {
		i->queues = channels.rx_count + channels.combined_count;
		i->senders = channels.tx_count + channels.combined_count;
	}
	close(fd);
	errno = 0;
	must(i->queues <= SOFT_QUEUES, "%s has %u queues, at most %u can be served", i->name,
	     i->queues, SOFT_QUEUES);
}

static int open_link(const char *kind, __u32 ifindex)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/links/xdp_%u_%s", node.pins, ifindex, kind);
	return bpf_object_get(path);
}

static void add_interface(const char *name)
{
	struct interface *i = &node.interfaces[node.count];
	__u32 other;

	errno = 0;
	must(node.count < SOFT_PORTS, "at most %u interfaces", SOFT_PORTS);
	i->name = name;
	i->ifindex = if_nametoindex(name);
	must(i->ifindex, "interface %s", name);
	for (other = 0; other < node.count; other++)
		must(node.interfaces[other].ifindex != i->ifindex, "interface %s is named twice",
		     name);
	node.count++;
	i->link = open_link("native", i->ifindex);
	if (i->link < 0)
		i->link = open_link("generic", i->ifindex);
	must(i->link >= 0, "the daemon is not attached to interface %s", name);
	ask_for_queues(i);
}

/* As many workers as every interface has queues, unless fewer are asked for. */
static void choose_workers(void)
{
	__u32 i, most = MAX_WORKERS;
	const char *least = "";

	for (i = 0; i < node.count; i++) {
		struct interface *p = &node.interfaces[i];
		__u32 both = p->queues < p->senders ? p->queues : p->senders;

		if (both < most) {
			most = both;
			least = p->name;
		}
	}
	errno = 0;
	must(node.workers <= most, "%u workers: interface %s has %u queues", node.workers, least,
	     most);
	if (!node.workers)
		node.workers = most;
}

/* The program that a link runs. */
static int program_of(struct interface *i)
{
	struct bpf_link_info info = {};
	union bpf_attr attr = {};

	must(!bpf_object_info(i->link, &info, sizeof(info)), "ask about the link of %s", i->name);
	attr.prog_id = info.prog_id;
	return bpf_system(BPF_PROG_GET_FD_BY_ID, &attr);
}

/* 0, or -1 where the link runs another program than `from`. */
static long replace(struct interface *i, int to, int from)
{
	union bpf_attr attr = {
		.link_update = { .link_fd = i->link,
				 .new_prog_fd = to,
				 .old_prog_fd = from,
				 .flags = BPF_F_REPLACE },
	};

	return bpf_system(BPF_LINK_UPDATE, &attr);
}

static void detach_all(void);

static void attach_all(void)
{
	__u32 i, first;

	for (i = 0; i < node.count; i++) {
		struct interface *p = &node.interfaces[i];
		int before = program_of(p);

		first = i * SOFT_QUEUES + 1;
		if (before < 0 || bpf_store(node.before, &i, &before, BPF_ANY) ||
		    bpf_store(node.first, &p->ifindex, &first, BPF_ANY) ||
		    replace(p, node.receive, before)) {
			int failed = errno;

			detach_all();
			errno = failed;
			must(0, "take the packets of interface %s", p->name);
		}
		close(before);
	}
}

/* Each interface runs again what it ran, unless somebody gave it another program: the
 * daemon does so when it starts again. */
static void detach_all(void)
{
	__u32 i;

	for (i = 0; i < node.count; i++) {
		union bpf_attr attr = {};
		int before;

		if (bpf_look_up(node.before, &i, &attr.prog_id))
			continue; /* not attached yet */
		before = bpf_system(BPF_PROG_GET_FD_BY_ID, &attr);
		if (before < 0 ||
		    (replace(&node.interfaces[i], before, node.receive) && errno != EPERM))
			fprintf(stderr, "culvert-soft: give %s back: %s\n", node.interfaces[i].name,
				strerror(errno));
		close(before);
	}
}

#endif
