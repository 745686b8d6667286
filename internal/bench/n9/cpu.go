package n9

import (
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/proc"
)

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
