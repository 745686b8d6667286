// Package bad has log calls that TestLogEvents of the module finds.
package bad

import (
	"context"
	"log/slog"

	"github.com/culvert-net/culvert/internal/logevent"
)

func lines(log *slog.Logger, args ...any) {
	log.Debug("needs none")
	log.Info("has none")
	log.Error("has none", "error", args)
	slog.Warn("has a name that nobody defined", "event", "bgp.session_up")
	log.InfoContext(context.Background(), "has it too late", "peer", 1, "event", logevent.BGPSessionUp)
	log.Log(context.Background(), slog.LevelWarn, "has none", args...)
	log.Error("has another level", "event", logevent.BGPSessionDown)
	log.Warn("is right", "event", logevent.BGPSessionDown, "peer", 1)
}
