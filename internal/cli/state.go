package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/backup"
	"github.com/culvert-net/culvert/internal/agent/store"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/printer"
)

func stateCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "state", Short: "Back up and restore what the daemon keeps on disk", Args: cmdline.NoArgs,
		Long: `Back up and restore what the daemon keeps on disk: resources added through the API,
the configuration applied last and, of a user plane function, PFCP sessions.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(stateBackup(a), stateShow(a), stateRestore(a))
	return c
}

func stateBackup(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "backup FILE", Short: "Write the running daemon's state to a file", Args: cmdline.Exactly(1, "one FILE"),
		Long: `Write the running daemon's state to a file that only its owner can read. All of it is
of one moment; the daemon goes on meanwhile. A FILE that is there is replaced when the
backup is whole.`,
		Example: "  culvert state backup culvert.backup\n  culvert state backup culvert.backup -o json",
		RunE: func(c *cobra.Command, args []string) error {
			content, err := ask(a, c, changeTimeout, func(client *api.Client, ctx context.Context) (*backup.Content, error) {
				return writeBackup(ctx, client, args[0])
			})
			if err != nil {
				return err
			}
			return a.print(c, content, func(g *printer.Grid) {
				g.Line(fmt.Sprintf("%s has %s of the API and %s", args[0], plural.Of(len(content.Resources), "resource"), plural.Of(content.Sessions, "session")))
			})
		},
	}
	return a.printing(c)
}

// writeBackup writes a backup beside path, checks it, and gives it its name.
func writeBackup(ctx context.Context, client *api.Client, path string) (*backup.Content, error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	err = client.Backup(ctx, file)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return nil, err
	}
	f, err := backup.Open(file.Name())
	if err != nil {
		return nil, fmt.Errorf("what the daemon sent: %w", err)
	}
	return &f.Content, errors.Join(f.Close(), os.Rename(file.Name(), path))
}

func stateShow(a *app) *cobra.Command {
	return a.printing(&cobra.Command{
		Use: "show FILE", Short: "Check a backup and show what is in it", Args: cmdline.Exactly(1, "one FILE"),
		Example: "  culvert state show culvert.backup\n  culvert state show culvert.backup -o json",
		RunE: func(c *cobra.Command, args []string) error {
			f, err := backup.Open(args[0])
			if err != nil {
				return err
			}
			return errors.Join(a.print(c, &f.Content, func(g *printer.Grid) {
				g.Row("node", f.Node)
				g.Row("time", f.Time.Format(time.RFC3339))
				g.Row("version", f.Version)
				g.Row("sessions", f.Sessions)
				for _, r := range f.Resources {
					g.Row(string(r.Kind), r.Key)
				}
			}), f.Close())
		},
	})
}

func stateRestore(a *app) *cobra.Command {
	var path string
	var withSessions, yes bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Write a backup to the state of a stopped daemon", Args: cmdline.Exactly(1, "one FILE"),
		Long: `Write a backup to the state of a stopped daemon: the resources that were added through
the API, and the configuration applied last, become those of the backup. It asks before
it overwrites, and keeps the former state file as *.before. What BGP, Kubernetes and
pods have there stays.

Sessions in the state directory stay, because they are later than the backup. If there
are none, the next start has a new Recovery Time Stamp, and SMFs set their sessions up
again. --sessions brings back those of the backup with their Recovery Time Stamp. Use it
only if no SMF has changed a session since, and only before the machine's next boot.`,
		Example: "  culvert state restore culvert.backup\n  culvert state restore culvert.backup --yes",
		RunE: func(c *cobra.Command, args []string) error {
			f, err := backup.Open(args[0])
			if err != nil {
				return err
			}
			return errors.Join(a.restore(c, f, args[0], path, withSessions, yes), f.Close())
		},
	}
	flags := c.Flags()
	flags.StringVar(&path, "state", agent.DefaultStatePath, "state `file` of the daemon")
	flags.BoolVar(&withSessions, "sessions", false, "bring back PFCP sessions, too: no SMF has changed them since the backup")
	flags.BoolVar(&yes, "yes", false, "do not ask before overwriting")
	return a.printing(c)
}

func (a *app) restore(c *cobra.Command, f *backup.File, name, path string, withSessions, yes bool) error {
	there, err := store.Check(path)
	if err != nil {
		return running(err, name, path)
	}
	if there && !yes {
		if a.format != printer.Table {
			return cmdline.Usagef("restore asks before it overwrites %s: give --yes with -o %s", path, a.format)
		}
		question := &fixer{in: c.InOrStdin(), out: c.OutOrStdout()}
		fmt.Fprintf(c.OutOrStdout(), "%s has resources that %s of %s, %s, replaces\n", path, name, f.Node, f.Time.Format(time.RFC3339))
		if ok, err := question.confirmed(c.Context(), "overwrite them?"); err != nil || !ok {
			return err
		}
	}
	result, err := f.Restore(path, withSessions)
	if err != nil {
		return running(err, name, path)
	}
	return a.print(c, result, func(g *printer.Grid) {
		g.Line(fmt.Sprintf("%s has %s of the API and %s of %s", path, plural.Of(result.Resources, "resource"), plural.Of(result.Sessions, "session"), name))
		if result.Former != "" {
			g.Line("the former state file is " + result.Former)
		}
		if result.LeftOut != "" {
			g.Line(fmt.Sprintf("%s left out: %s", plural.Of(f.Sessions, "session"), result.LeftOut))
		}
	})
}

// running says what to do about a daemon that runs.
func running(err error, name, path string) error {
	if !errors.Is(err, store.ErrHeld) {
		return err
	}
	again := []string{"culvert", "state", "restore", name}
	if path != agent.DefaultStatePath {
		again = slices.Insert(again, 3, "--state", path)
	}
	return fmt.Errorf("%w %s, and sessions cannot change under it: run\n  systemctl stop culvert\n  %s", err, path, strings.Join(again, " "))
}
