package n9

import (
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/lab"
)

// core are the threads that handle all nodes' packets on one CPU: its ksoftirqd, and
// those that receive at some interfaces, each the first of what follows in its
// softirqs.
type core []int

func newCore(network *lab.Network, cpu int, interfaces [][2]string, undo *node.Undo) (core, error) {
	softirqd, err := proc.Softirqd(cpu)
	if err != nil {
		return nil, err
	}
	c := core{softirqd}
	for _, i := range interfaces {
		t, err := napi.Start(network.Namespace(i[0]), i[1], cpu)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i[0], err)
		}
		undo.Later(t.Stop)
		c = append(c, t.PIDs...)
	}
	return c, nil
}

// chooseCPUs are those that the nodes run on and the generator sends on: what is
// asked for (below 0: the last), and the first other.
func chooseCPUs(wanted int) (nodes, generator int, err error) {
	allowed, err := proc.Allowed()
	if err != nil {
		return 0, 0, err
	}
	return pick(wanted, allowed)
}

func pick(wanted int, allowed []int) (nodes, generator int, err error) {
	if len(allowed) < 2 {
		return 0, 0, errors.New("one CPU sends, another is the network's: this process may use one only (fix: give it two)")
	}
	if nodes = wanted; wanted < 0 {
		nodes = allowed[len(allowed)-1]
	}
	if !slices.Contains(allowed, nodes) {
		return 0, 0, fmt.Errorf("--cpu %d: this process may use %v", wanted, allowed)
	}
	if generator = allowed[0]; generator == nodes {
		generator = allowed[1]
	}
	return nodes, generator, nil
}
