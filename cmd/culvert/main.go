// Culvert is one eBPF data path that speaks GTP-U and SRv6: the daemon and its
// command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/culvert-net/culvert/internal/bench"
	"github.com/culvert-net/culvert/internal/cli"
	"github.com/culvert-net/culvert/internal/lab"
)

// version is set by the linker; a build without it says what Go knows.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := cli.New(programVersion(), lab.Command(), bench.Command())
	code := cli.Execute(ctx, root, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
