package check

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/suite"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// suiteOf runs tests of Kubernetes'. All have to pass, and some to be made.
func suiteOf(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	program := filepath.Join(cluster.Programs(), cluster.TestProgram)
	build, err := buildOf(program, r.Culvert, filepath.Join(filepath.Dir(r.Culvert), "culvert-cni"))
	if err != nil {
		return err
	}
	cache := filepath.Dir(filepath.Dir(cluster.Programs()))
	file := filepath.Join(cache, "suites-"+r.Name+"-"+r.State.Variant+".json")
	state, err := suite.Open(file, build)
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "suites-"+r.Name, r.State.Variant)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	r.Tell("what passes of %s is in %s: remove it to begin anew", c.Name, file)
	s := suite.Suite{
		Name: c.Name, Program: program, Focus: c.Suite.Focus, Skip: c.Suite.Skip, Workers: c.Suite.Workers, Dir: dir, State: state,
		Flags: []string{"--kubeconfig", instance.Kubeconfig(r.Instance), "--kubectl-path", filepath.Join(cluster.Programs(), "kubectl"),
			"--provider", "skeleton", "--num-nodes", fmt.Sprint(len(r.Kubelets())), "--dump-logs-on-failure=false"},
		Enter: r.Namespace(r.APIServer()).Do, Say: r.Tell,
	}
	result, err := s.Run(ctx)
	o.Sent, o.Received = result.Passed+len(result.Failed), result.Passed
	o.Say("%d passed (%d of them before), %d failed, %d skipped", result.Passed, result.Before, len(result.Failed), result.Skipped)
	for _, f := range result.Failed {
		o.Fail("%s: %s", f.Name, f.Why)
	}
	if result.Passed+len(result.Failed) == 0 && err == nil {
		o.Fail("no test was made")
	}
	return err
}

// buildOf is a name of what files are.
func buildOf(files ...string) (string, error) {
	h := sha256.New()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
