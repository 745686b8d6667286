package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/metrics"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/cni/install"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/logevent"
)

func runCommand(a *app) *cobra.Command {
	var file, pinPath, statePath string
	var files install.Files
	var strict bool
	c := &cobra.Command{
		Use: "run --config FILE", Short: "Run the daemon",
		Long: `Run the daemon. It loads the data path, or takes over the pinned one, and keeps it
in sync with the configuration file and the state file.

SIGHUP reads the file again and applies the difference. When the daemon ends, even
if it is killed, the data path goes on forwarding; "culvert unpin" stops it.`,
		Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return cmdline.Usagef("--config is missing: name the configuration file")
			}
			wanted, err := readConfig(file)
			if err != nil {
				return err
			}
			if err := needs(c, "CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"); err != nil {
				return err
			}
			level := &slog.LevelVar{}
			logger := newLogger(c.ErrOrStderr(), wanted.Log, level)
			d, err := newDaemon(wanted, agent.Options{
				Config: wanted, ConfigPath: file, StatePath: statePath, PinPath: pinPath,
				Version: a.version, Logger: logger, LogLevel: level,
			})
			if err != nil {
				return err
			}
			d.cni, d.file, d.strict = files, file, strict
			return d.run(c.Context())
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration `file`")
	c.Flags().StringVar(&pinPath, "pin-path", agent.DefaultPinPath, "`directory` on a bpffs for the pins of links, programs and maps")
	c.Flags().StringVar(&statePath, "state", agent.DefaultStatePath, "`file` for the resources that were added through the API")
	c.Flags().BoolVar(&strict, "strict", false, "end at the start if an interface has no program, or a resource is not in the data path")
	c.Flags().StringVar(&files.ConfDir, "cni-conf-dir", "", "`directory` of the container runtime for the CNI configuration, which the daemon writes when pods can be added (default: it writes none)")
	c.Flags().StringVar(&files.BinDir, "cni-bin-dir", "/opt/cni/bin", "`directory` of the runtime's plugins")
	confFlags(c, &files)
	return c
}

func newLogger(w io.Writer, c config.Log, level *slog.LevelVar) *slog.Logger {
	_ = level.UnmarshalText([]byte(c.Level)) // validated: the names are slog's
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// daemon is what `culvert run` keeps running together: if one part fails, all
// end.
type daemon struct {
	config  *config.Config
	logger  *slog.Logger
	agent   *agent.Agent
	handler *api.Handler
	server  *api.Server
	cni     install.Files // the runtime's
	file    string        // of the configuration
	version string
	strict  bool // it ends where it cannot be as configured
}

// newDaemon listens first: a second daemon ends here, before it changes the
// data path of the first.
func newDaemon(c *config.Config, o agent.Options) (*daemon, error) {
	d := &daemon{config: c, logger: o.Logger, version: o.Version}
	o.OnReady = d.ready
	if os.Getenv("GOGC") == "" {
		// A change of a million tunnels leaves garbage of as much again. What is
		// collected more often than by default is little, at other times.
		debug.SetGCPercent(50)
	}
	var err error
	if d.agent, err = agent.New(o); err != nil {
		return nil, err
	}
	d.handler = api.NewHandler(d.agent, examiner(&d.cni))
	d.handler.SetBackup(func(ctx context.Context, w io.Writer) error { return agent.Backup(ctx, d.agent, w) })
	d.server, err = api.Listen(c.API, d.handler, o.Logger)
	return d, err
}

// ready says that the daemon has done at its start what it could.
func (d *daemon) ready() {
	problem := d.degraded()
	switch {
	case problem == nil:
		d.logger.Info("ready", "event", logevent.DaemonReady, "version", d.version)
		d.notify("READY=1\nSTATUS=forwarding")
	case !d.strict:
		d.logger.Error("ready, but not as configured; will try again", "event", logevent.DaemonDegraded, "version", d.version, "problem", problem)
		d.notify("READY=1\nSTATUS=degraded: " + strings.ReplaceAll(problem.Error(), "\n", " "))
	}
}

// degraded says which packets are not handled as configured; nil: all are.
func (d *daemon) degraded() error {
	var errs []error
	for _, c := range agent.Conditions(d.agent) {
		if c.Problem != "" {
			errs = append(errs, fmt.Errorf("%s: %s", c.Name, c.Problem))
		}
	}
	return errors.Join(errs...)
}

// insist ends a strict daemon that is not as configured.
func (d *daemon) insist(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-d.agent.Ready():
		if err := d.degraded(); err != nil {
			return fmt.Errorf("not as configured: %w", err)
		}
	}
	return nil
}

func (d *daemon) run(ctx context.Context) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.agent.Run(ctx) })
	group.Go(func() error { return d.server.Serve(ctx) })
	group.Go(func() error { return d.handler.Run(ctx) })
	group.Go(func() error { return metrics.Serve(ctx, d.agent, d.config.Metrics.Listen, d.logger) })
	group.Go(func() error { return d.reloads(ctx, hangup) })
	group.Go(func() error { return d.watchdog(ctx) })
	if d.strict {
		group.Go(func() error { return d.insist(ctx) })
	}
	if d.cni.ConfDir != "" {
		group.Go(func() error { return announce(ctx, d.cni, d.agent.PodReadiness, d.logger) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	d.logger.Info("ended; packets are forwarded on", "event", logevent.DaemonEnded)
	return nil
}

// reloads applies the file at each SIGHUP. A file that is refused changes
// nothing, so the daemon stays.
func (d *daemon) reloads(ctx context.Context, hangup <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
		}
		var now unix.Timespec // by which systemd distinguishes reloads
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return err
		}
		d.notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
		if changes, err := d.agent.Reload(ctx); err != nil {
			logRefused(d.logger, d.file, err)
		} else {
			d.logger.Info("the configuration file was applied", "event", logevent.ConfigApplied, "file", d.file, "changes", len(changes), "after_restart", desired.Waiting(changes))
		}
		d.notify("READY=1")
	}
}

// logRefused logs why the configuration file was not applied, with what is known of each reason.
func logRefused(logger *slog.Logger, file string, err error) {
	const refused = "the configuration file was not applied"
	list, ok := errors.AsType[config.Errors](err)
	if !ok {
		logger.Error(refused, "event", logevent.ConfigRefused, "file", file, "error", err)
		return
	}
	for _, e := range list[:min(len(list), config.MostShown)] {
		args := []any{"file", file}
		if e.Line > 0 {
			args = append(args, "line", e.Line)
		}
		if e.Field != "" {
			args = append(args, "field", e.Field)
		}
		if e.Line == 0 && e.Resource != "" {
			args = append(args, "resource", e.Resource)
		}
		logger.Error(refused, "event", logevent.ConfigRefused, slog.Group("", append(args, "problem", e.Problem, "fix", e.Fix)...))
	}
	if more := len(list) - config.MostShown; more > 0 {
		logger.Error(refused, "event", logevent.ConfigRefused, "file", file, "more", more)
	}
}

// notify sends systemd the state (sd_notify(3)), and logs why that fails.
func (d *daemon) notify(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		d.logger.Warn("systemd did not get the state", "event", logevent.DaemonNotifyFailed, "error", err)
	}
}

// watchdog tells systemd that the daemon makes progress, twice in the time that the unit's
// WatchdogSec gives it, until ctx ends.
func (d *daemon) watchdog(ctx context.Context) error {
	interval, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("WatchdogSec of the unit: %w", err)
	}
	if interval == 0 {
		return nil
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		limit, cancel := context.WithTimeout(ctx, interval)
		err := agent.Alive(limit, d.agent)
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.logger.Error("systemd will start the daemon again", "event", logevent.DaemonStuck, "error", err)
		default:
			d.notify(systemd.SdNotifyWatchdog)
		}
	}
}
