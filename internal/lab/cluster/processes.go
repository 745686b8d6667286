package cluster

import (
	"path/filepath"
	"slices"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Processes returns the matching processes of a node of kind kubelet, without its
// first process, from which all others descend.
func Processes(in *instance.Instance, n *topology.Node, match func(pid int) bool) (pids []int, err error) {
	p, _ := in.Process(n, instance.NodeProcess)
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, one := range all {
		if stat, err := one.Stat(); err == nil { // else it has ended
			children[stat.PPID] = append(children[stat.PPID], one.PID)
		}
	}
	for next := children[p.PID]; len(next) > 0; next = next[1:] {
		if match(next[0]) {
			pids = append(pids, next[0])
		}
		next = append(next, children[next[0]]...)
	}
	return pids, nil
}

// Runs says whether a process was started with these words, the first of which is
// the name of a program in whatever folder.
func Runs(pid int, words ...string) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	args, err := p.CmdLine()
	if err != nil || len(args) < len(words) {
		return false
	}
	args[0] = filepath.Base(args[0])
	return slices.Equal(args[:len(words)], words)
}
