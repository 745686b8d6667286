package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
)

// Backer writes a backup of the daemon's state.
type Backer func(ctx context.Context, w io.Writer) error

// WithBackup adds backups to a handler of the management API.
func WithBackup(next http.Handler, back Backer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.Handle(culvertv1connect.CulvertBackupProcedure, connect.NewServerStreamHandlerSimple(culvertv1connect.CulvertBackupProcedure,
		func(ctx context.Context, _ *pb.BackupRequest, stream *connect.ServerStream[pb.BackupResponse]) error {
			out := bufio.NewWriterSize(pieces{stream}, piece)
			if err := back(ctx, out); err != nil {
				return err
			}
			return out.Flush()
		}, handlerOptions()...))
	return mux
}

var errNoBackup = errors.New("this daemon makes no backups")

// piece is how many octets a message has.
const piece = 256 << 10

// pieces sends what is written.
type pieces struct {
	stream *connect.ServerStream[pb.BackupResponse]
}

func (p pieces) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), piece)
		if err := p.stream.Send(&pb.BackupResponse{Data: rest[:n]}); err != nil {
			return len(data) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(data), nil
}

// Backup is of a handler without WithBackup.
func (h *handler) Backup(context.Context, *pb.BackupRequest, *connect.ServerStream[pb.BackupResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, errNoBackup)
}

// Backup writes a backup of the daemon's state to w. After an error w has a part of it.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	stream, err := c.rpc.Backup(ctx, &pb.BackupRequest{})
	if err != nil {
		return c.fail(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if _, err := w.Write(stream.Msg().GetData()); err != nil {
			return err
		}
	}
	return c.fail(stream.Err())
}
