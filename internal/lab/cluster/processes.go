package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Processes of a node of kind kubelet that match, but for its first: all others
// descend from that one.
func Processes(in *instance.Instance, n *topology.Node, match func(pid int) bool) (pids []int, err error) {
	p, _ := in.Process(n, instance.NodeProcess)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			parent := instance.ParentOf(pid)
			children[parent] = append(children[parent], pid)
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
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // none: it has ended
	args := strings.Split(string(text), "\x00")
	args[0] = filepath.Base(args[0])
	return len(args) >= len(words) && slices.Equal(args[:len(words)], words)
}
