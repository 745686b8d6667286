package cmdline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
)

// A signal decides the exit code of what it kept from its end, and of nothing else.
func TestExitCodes(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		signal syscall.Signal // 0: none came
		err    error
		code   int
		said   string
	}{
		"done":                           {0, nil, 0, ""},
		"failed":                         {0, failed, 1, "culvert: failed\n"},
		"wrong usage":                    {0, cmdline.Usage(failed), 2, "culvert: failed\n"},
		"a check failed":                 {0, cmdline.WithCode(cmdline.ExitCheckFailed, failed), 3, "culvert: failed\n"},
		"canceled by itself":             {0, context.Canceled, 1, "culvert: context canceled\n"},
		"Ctrl-C":                         {syscall.SIGINT, context.Canceled, 130, ""},
		"SIGTERM":                        {syscall.SIGTERM, fmt.Errorf("read: %w", context.Canceled), 143, ""},
		"the cause":                      {syscall.SIGINT, cmdline.Interrupt{Signal: syscall.SIGINT}, 130, ""},
		"Ctrl-C, with a word about it":   {syscall.SIGINT, errors.New("interrupted"), 130, "culvert: interrupted\n"},
		"a daemon that SIGTERM ends":     {syscall.SIGTERM, nil, 0, ""},
		"Ctrl-C in the middle of checks": {syscall.SIGINT, cmdline.WithCode(cmdline.ExitCheckFailed, failed), 130, "culvert: failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			root := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
				if c.signal != 0 {
					cancel(cmdline.Interrupt{Signal: c.signal})
				}
				return c.err
			}}
			var said strings.Builder
			if code := cmdline.Execute(ctx, root, nil, &said); code != c.code || said.String() != c.said {
				t.Errorf("exit code %d, %q; want %d, %q", code, said.String(), c.code, c.said)
			}
		})
	}
}

// What computes without end does not keep the process from ending.
// Shells show the texts of flags as they are.
func TestCompletionOfFlags(t *testing.T) {
	var stdout, stderr strings.Builder
	root := &cobra.Command{Use: "culvert"}
	sub := &cobra.Command{Use: "sub", Run: func(*cobra.Command, []string) {}}
	root.PersistentFlags().String("address", "", "`host:port` of the daemon")
	sub.Flags().String("access", "", "`address` of the gNB")
	root.AddCommand(sub)
	root.SetOut(&stdout)
	if code := cmdline.Execute(t.Context(), root, []string{"__complete", "sub", "--a"}, &stderr); code != cmdline.ExitOK ||
		!strings.Contains(stdout.String(), "--access\taddress of the gNB\n") || !strings.Contains(stdout.String(), "--address\thost:port of the daemon\n") {
		t.Errorf("code %d: %s", code, stdout.String())
	}
}

func TestAwait(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	never := make(chan struct{})
	defer close(never)
	cancel(cmdline.Interrupt{Signal: syscall.SIGTERM})
	_, err := cmdline.Await(ctx, func() (int, error) { <-never; return 0, nil })
	if _, interrupted := errors.AsType[cmdline.Interrupt](err); !interrupted {
		t.Errorf("%v, want the interrupt", err)
	}
	if n, err := cmdline.Await(context.Background(), func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("%d, %v, want 7", n, err)
	}
}
