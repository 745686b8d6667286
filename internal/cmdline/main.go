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
)

// Exit codes of all commands.
const (
	ExitOK          = 0 // done
	ExitError       = 1 // failed
	ExitUsage       = 2 // wrong usage
	ExitCheckFailed = 3 // a check found a problem
)

// Main runs the command line of this process and exits with its code. SIGINT and
// SIGTERM end the context of the command. version is what the linker set; a
// build without it has the version that Go recorded.
func Main(version string, root func(version string) *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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

// Execute runs the command line args of root, writes an error to stderr, and
// returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintf(stderr, "culvert: %s\n", err)
	}
	return Code(err)
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
