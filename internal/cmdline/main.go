package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of all commands.
const (
	ExitOK          = 0 // done
	ExitError       = 1 // failed
	ExitUsage       = 2 // wrong usage
	ExitCheckFailed = 3 // a check found a problem
	// A command that a signal ended has 128 and the signal's number, as shells say it:
	// 130 after Ctrl-C, 143 after SIGTERM.
	exitSignal = 128
)

// Interrupt is why the context of a command ended: this process received a signal.
type Interrupt struct{ Signal syscall.Signal }

// Error names the signal.
func (e Interrupt) Error() string { return e.Signal.String() }

// Main runs the command line of this process and exits with its code. SIGINT and
// SIGTERM end the context of the command, with an Interrupt as cause. version is what
// the linker set; a build without it has the version that Go recorded.
func Main(version string, root func(version string) *cobra.Command) {
	ctx, stop := interruptible(context.Background())
	if info, ok := debug.ReadBuildInfo(); version == "" && ok {
		version = info.Main.Version
	}
	if version == "" {
		version = "unknown"
	}
	code := Execute(ctx, root(version), os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// interruptible returns a context that the first SIGINT or SIGTERM ends. stop gives the
// signals back to the system, and waits for the goroutine.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer close(ended)
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			cancel(Interrupt{number})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-ended
	}
}

// Execute runs the command line args of root, writes an error to stderr, and
// returns the exit code. A command that ends well after a signal, as the daemon does,
// has the code 0. One that fails after it was interrupted, and so did not do all of its
// work.
func Execute(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		unquoteUsage(root)
	}
	root.SetArgs(args)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	interrupt, interrupted := errors.AsType[Interrupt](context.Cause(ctx))
	if err != nil && err.Error() != "" && !(interrupted && isCanceled(err)) {
		fmt.Fprintf(stderr, "culvert: %s\n", err)
	}
	if err != nil && interrupted {
		return exitSignal + int(interrupt.Signal)
	}
	return Code(err)
}

// unquoteUsage takes the marks of values' names out of the texts of flags, which shells show as
// they are.
func unquoteUsage(c *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	c.PersistentFlags().VisitAll(plain)
	c.Flags().VisitAll(plain)
	for _, sub := range c.Commands() {
		unquoteUsage(sub)
	}
}

// isCanceled says whether an error tells nothing but that the context has ended.
func isCanceled(err error) bool {
	_, interrupted := errors.AsType[Interrupt](err)
	return interrupted || errors.Is(err, context.Canceled)
}

// Await returns what f returns, or the reason if ctx ends before: f computes, and does
// not look at ctx. It goes on until the process ends.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Code returns the exit code of a command that ended with err.
func Code(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[interface {
		error
		ExitStatus() int
	}](err); ok {
		return e.ExitStatus()
	}
	if isCobraUsage(err) {
		return ExitUsage
	}
	return ExitError
}

// isCobraUsage recognizes cobra's own errors about arguments, which have no type.
func isCobraUsage(err error) bool {
	for _, start := range []string{"unknown command", "accepts ", "requires at least ", "required flag"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// ExitStatus is the exit code of the program.
func (e *exitError) ExitStatus() int { return e.code }

// WithCode gives err an exit code. A nil err stays nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// Usage marks err as wrong usage. A nil err stays nil.
func Usage(err error) error { return WithCode(ExitUsage, err) }

// Usagef formats an error of wrong usage.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }
