package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// field and document are BSON's, whose fields have an order (bsonspec.org). Values are string,
// int32, int64, bool, document and []document.
type field struct {
	name  string
	value any
}

type document []field

// The types of BSON elements that are sent or understood.
const (
	bsonDouble   = 1
	bsonString   = 2
	bsonDocument = 3
	bsonArray    = 4
	bsonBool     = 8
	bsonInt32    = 16
	bsonInt64    = 18
)

// subscribeOpen5GS writes subscribers to the database of Open5GS by MongoDB's wire protocol, as
// its web console does.
func subscribeOpen5GS(ctx context.Context, s *topology.Subscribers, dial func(ctx context.Context, network, address string) (net.Conn, error)) error {
	c, err := dial(ctx, "tcp", s.Open5GS.String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(programTime)); err != nil {
		return err
	}
	var list []document
	for _, x := range s.List {
		list = append(list, openSubscription(s, x))
	}
	return command(c, document{{"insert", "subscribers"}, {"documents", list}, {"$db", "open5gs"}})
}

// openSubscription is a subscriber in the words of Open5GS' database.
func openSubscription(s *topology.Subscribers, x topology.Subscriber) document {
	var list []document
	for i, y := range x.Sessions {
		types := map[string]int32{"": 1, "IPv4": 1, "IPv6": 2, "IPv4v6": 3}
		session := document{
			{"name", y.DNN}, {"type", types[y.Type]}, {"qos", qosOf(9, 8)},
			{"ambr", document{{"downlink", rate(y.Downlink)}, {"uplink", rate(y.Uplink)}}},
		}
		var address document
		if y.IPv4.IsValid() {
			address = append(address, field{"ipv4", y.IPv4.String()})
		}
		if y.IPv6.IsValid() {
			address = append(address, field{"ipv6", y.IPv6.String()})
		}
		if address != nil {
			session = append(session, field{"ue", address})
		}
		if f := y.Flow; f != nil {
			limit := document{{"downlink", rate(f.Downlink)}, {"uplink", rate(f.Uplink)}}
			filter := field{"description", "permit out ip from " + strings.TrimSuffix(f.Filter, "/32") + " to assigned"}
			flows := []document{{{"direction", int32(1)}, filter}, {{"direction", int32(2)}, filter}} // downlink, uplink
			session = append(session, field{"pcc_rule", []document{{{"qos", append(qosOf(f.FiveQI, 8), field{"mbr", limit})}, {"flow", flows}}}})
		}
		list = append(list, document{{"sst", int32(y.SST)}, {"sd", y.SD}, {"default_indicator", i == 0}, {"session", []document{session}}})
	}
	return document{
		{"imsi", x.IMSI}, {"subscriber_status", int32(0)}, {"operator_determined_barring", int32(0)}, {"network_access_mode", int32(0)},
		{"subscribed_rau_tau_timer", int32(12)}, {"access_restriction_data", int32(32)},
		{"security", document{{"k", s.Key}, {"opc", s.OPc}, {"amf", "8000"}, {"sqn", int64(0)}}},
		{"ambr", document{{"downlink", rate("2 Gbps")}, {"uplink", rate("1 Gbps")}}}, {"slice", list},
	}
}

func qosOf(index int, priority int32) document {
	return document{{"index", int32(index)}, {"arp", document{{"priority_level", priority}, {"pre_emption_capability", int32(1)}, {"pre_emption_vulnerability", int32(1)}}}}
}

// rate is one like "8 Mbps", which is valid, as a number and how often it is to be multiplied
// by 1000.
func rate(text string) document {
	number, unit, _ := strings.Cut(text, " ")
	n, _ := strconv.Atoi(number)
	return document{{"value", int32(n)}, {"unit", int32(strings.Index("bKMG", unit[:1]))}}
}

// command has MongoDB, or what speaks its protocol, do a command (OP_MSG).
func command(c io.ReadWriter, d document) error {
	const opMsg, header, flags = 2013, 16, 5 // flags: and the kind of a section
	body := encode(d)
	message := binary.LittleEndian.AppendUint32(nil, uint32(header+flags+len(body)))
	message = binary.LittleEndian.AppendUint32(message, 1)
	message = binary.LittleEndian.AppendUint32(message, 0)
	message = binary.LittleEndian.AppendUint32(message, opMsg)
	message = append(append(message, make([]byte, flags)...), body...)
	if _, err := c.Write(message); err != nil {
		return err
	}
	head := make([]byte, header)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	const most = 1 << 20
	size := int(binary.LittleEndian.Uint32(head)) - header
	if op := binary.LittleEndian.Uint32(head[12:]); op != opMsg || size < flags || size > most {
		return fmt.Errorf("the database answers with operation %d of %d octets", op, size)
	}
	answer := make([]byte, size)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	got, err := decode(answer[flags:])
	if err != nil {
		return fmt.Errorf("answer of the database: %w", err)
	}
	if ok := got["ok"]; ok != 1.0 && ok != int32(1) || got["writeErrors"] != nil {
		return fmt.Errorf("the database refuses: %v %v", got["errmsg"], got["writeErrors"])
	}
	return nil
}

// encode makes BSON of a document.
func encode(d document) []byte {
	var body []byte
	for _, f := range d {
		at := len(body)
		body = append(append(append(body, 0), f.name...), 0)
		switch v := f.value.(type) {
		case string:
			body[at] = bsonString
			body = binary.LittleEndian.AppendUint32(body, uint32(len(v)+1))
			body = append(append(body, v...), 0)
		case int32:
			body[at] = bsonInt32
			body = binary.LittleEndian.AppendUint32(body, uint32(v))
		case int64:
			body[at] = bsonInt64
			body = binary.LittleEndian.AppendUint64(body, uint64(v))
		case bool:
			body[at] = bsonBool
			body = append(body, map[bool]byte{true: 1}[v])
		case document:
			body[at] = bsonDocument
			body = append(body, encode(v)...)
		case []document:
			body[at] = bsonArray
			var list document
			for i, x := range v {
				list = append(list, field{strconv.Itoa(i), x})
			}
			body = append(body, encode(list)...)
		}
	}
	const around = 5 // the length, and a zero at the end
	return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body)+around)), body...), 0)
}

var errBSON = errors.New("no BSON that is understood")

// decode reads the fields of a BSON document up to the first of a type that no answer needs.
func decode(b []byte) (map[string]any, error) {
	if len(b) < 5 || int(binary.LittleEndian.Uint32(b)) != len(b) || b[len(b)-1] != 0 {
		return nil, errBSON
	}
	got := map[string]any{}
	for b = b[4 : len(b)-1]; len(b) > 0; {
		kind := b[0]
		name, rest, found := strings.Cut(string(b[1:]), "\x00")
		if !found {
			return nil, errBSON
		}
		v, size := value(kind, []byte(rest))
		switch {
		case size == 0:
			return got, nil
		case size > len(rest):
			return nil, errBSON
		}
		got[name], b = v, []byte(rest)[size:]
	}
	return got, nil
}

// value reads one of a type, and says how long it is: 0 if it is of another, more than there
// is if it is not whole.
func value(kind byte, b []byte) (v any, size int) {
	fixed := map[byte]int{bsonDouble: 8, bsonString: 4, bsonDocument: 4, bsonArray: 4, bsonBool: 1, bsonInt32: 4, bsonInt64: 8}[kind]
	if fixed == 0 || len(b) < fixed {
		return nil, min(fixed, 1) * (len(b) + 1)
	}
	switch kind {
	case bsonDouble:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), fixed
	case bsonBool:
		return b[0] == 1, fixed
	case bsonInt32:
		return int32(binary.LittleEndian.Uint32(b)), fixed
	case bsonInt64:
		return int64(binary.LittleEndian.Uint64(b)), fixed
	}
	size = int(binary.LittleEndian.Uint32(b))
	if kind == bsonString {
		size += fixed
	}
	if size < 5 || size > len(b) {
		return nil, len(b) + 1
	}
	return string(b[fixed : size-1]), size // of a document: its elements as they are, for an error
}
