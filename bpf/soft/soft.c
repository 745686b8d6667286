// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

/* culvert-soft: the data path in user space, over AF_XDP, on the tables of a running
 * daemon. It is for comparison, see internal/dataplane/softrun. */
#define _GNU_SOURCE

#define access file_access /* which is a table's name here */
#include <unistd.h>
#undef access

/* The settings are a variable of the data path. Here they are where the daemon's are. */
#define node_settings unused_settings
#include "../maps.h"
#undef node_settings
static struct settings *settings_table;
#define node_settings (*settings_table)

#include "../datapath.c"
#include "work.h"

#include <getopt.h>

enum { ONLY_LONG = 256 };

#define NUMBER(name) { #name, required_argument, 0, ONLY_LONG }

/* Those that stand for a number are in the order of `numbers`. */
static const struct option known[] = {
	NUMBER(workers),
	NUMBER(call),
	NUMBER(pass),
	NUMBER(sockets),
	NUMBER(first),
	NUMBER(before),
	NUMBER(receive),
	{ "pins", required_argument, 0, 'p' },
	{ "spin", no_argument, &node.spin, 1 },
	{ "copy", no_argument, &node.copy, 1 },
	{},
};

static int *const numbers[] = {
	(int *)&node.workers, &call_program, &pass_program, &node.sockets,
	&node.first,          &node.before,  &node.receive,
};

static void usage(void)
{
	errno = 0;
	must(0, "culvert starts this program (internal/dataplane/softrun): culvert-soft frames|run "
		"--pins DIR --call FD ...");
}

static void read_arguments(int argc, char **argv)
{
	int o, i;
	char *end;

	while ((o = getopt_long(argc, argv, "", known, &i)) != -1) {
		if (o == ONLY_LONG) {
			*numbers[i] = strtoul(optarg, &end, 10);
			if (!*optarg || *end)
				usage();
		} else if (o == 'p') {
			node.pins = optarg;
		} else if (o) {
			usage();
		}
	}
	if (!node.pins || call_program < 0 || optind >= argc)
		usage();
}

int main(int argc, char **argv)
{
	int i;

	read_arguments(argc, argv);
	open_maps(node.pins);
	if (!strcmp(argv[optind], "frames")) {
		run_frames();
		return 0;
	}
	if (strcmp(argv[optind], "run") || optind + 1 == argc || pass_program < 0 ||
	    node.sockets < 0 || node.first < 0 || node.before < 0 || node.receive < 0)
		usage();
	for (i = optind + 1; i < argc; i++)
		add_interface(argv[i]);
	choose_workers();
	run_node();
	return 0;
}
