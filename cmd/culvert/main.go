// Culvert is one eBPF data path that speaks GTP-U and SRv6: the daemon and its
// command line.
package main

import (
	"github.com/culvert-net/culvert/internal/cli"
	"github.com/culvert-net/culvert/internal/cmdline"
)

// version is set by the linker.
var version = ""

func main() { cmdline.Main(version, cli.New) }
