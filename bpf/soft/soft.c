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
#include "frames.h"

#include <getopt.h>

static struct {
	const char *pins;
} options;

static const struct option known[] = {
	{ "pins", required_argument, 0, 'p' },
	{ "call", required_argument, 0, 'c' },
	{},
};

static void usage(void)
{
	errno = 0;
	must(0, "culvert starts this program (internal/dataplane/softrun): culvert-soft frames|run "
		"--pins DIR --call FD ...");
}

static void read_arguments(int argc, char **argv)
{
	int o;

	while ((o = getopt_long(argc, argv, "", known, 0)) != -1) {
		if (o == 'p')
			options.pins = optarg;
		else if (o == 'c')
			call_program = atoi(optarg);
		else
			usage();
	}
	if (!options.pins || call_program < 0)
		usage();
}

int main(int argc, char **argv)
{
	read_arguments(argc, argv);
	if (optind + 1 > argc)
		usage();
	open_maps(options.pins);
	if (!strcmp(argv[optind], "frames"))
		run_frames();
	else
		usage();
	return 0;
}
