package api

import (
	"bufio"
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
)

// Backer writes a backup of the daemon's state.
type Backer func(ctx context.Context, w io.Writer) error

// SetBackup has Backup answer with what back writes. Without it Backup is not implemented.
func (h *Handler) SetBackup(back Backer) { h.service.back = back }

func (h *handler) Backup(ctx context.Context, _ *pb.BackupRequest, stream *connect.ServerStream[pb.BackupResponse]) error {
	if h.back == nil {
		return connect.NewError(connect.CodeUnimplemented, errors.New("this daemon makes no backups"))
	}
	out := bufio.NewWriterSize(pieces{stream}, piece)
	if err := h.back(ctx, out); err != nil {
		return err
	}
	return out.Flush()
}

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
