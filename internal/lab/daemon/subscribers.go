package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// object is one of JSON.
type object = map[string]any

// subscribe tells a core of its subscribers. dial reaches it.
func subscribe(ctx context.Context, s *topology.Subscribers, dial func(ctx context.Context, network, address string) (net.Conn, error)) (err error) {
	if s.Open5GS.IsValid() {
		err = subscribeOpen5GS(ctx, s, dial)
	} else {
		err = subscribeFree5GC(ctx, s, dial)
	}
	if err != nil {
		return fmt.Errorf("subscribers: %w", err)
	}
	return nil
}

// subscribeFree5GC tells free5GC's web console. Its account is the one that it makes itself.
func subscribeFree5GC(ctx context.Context, s *topology.Subscribers, dial func(ctx context.Context, network, address string) (net.Conn, error)) error {
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	var login struct {
		Token string `json:"access_token"`
	}
	err := post(ctx, client, s, "/api/login", "", object{"username": "admin", "password": "free5gc"}, &login)
	for _, x := range s.List {
		if err != nil {
			break
		}
		err = post(ctx, client, s, "/api/subscriber/imsi-"+x.IMSI+"/"+s.PLMN, login.Token, subscription(s, x), nil)
	}
	return err
}

func post(ctx context.Context, client *http.Client, s *topology.Subscribers, path, token string, body object, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Free5GC.String()+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Token", token)
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s: %s (%w)", path, answer.Status, text, err)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// subscription is a subscriber in the web console's words.
func subscription(s *topology.Subscribers, x topology.Subscriber) object {
	var defaults, sessions, flowRules, flows, charged []object
	selection, policies := object{}, object{}
	for i, y := range x.Sessions {
		nssai, key := object{"sst": y.SST, "sd": y.SD}, fmt.Sprintf("%02x%s", y.SST, strings.ToLower(y.SD))
		defaults = append(defaults, nssai)
		sessions = append(sessions, object{"singleNssai": nssai, "dnnConfigurations": object{y.DNN: dnn(y)}})
		selection[key] = object{"dnnInfos": []object{{"dnn": y.DNN}}}
		policies[key] = object{"snssai": nssai, "smPolicyDnnData": object{y.DNN: object{"dnn": y.DNN}}}
		if f := y.Flow; f != nil {
			flowRules = append(flowRules, object{"filter": f.Filter, "precedence": 128 + i, "snssai": key, "dnn": y.DNN, "qosRef": i + 1})
			flows = append(flows, object{"snssai": key, "dnn": y.DNN, "qosRef": i + 1, "5qi": f.FiveQI, "mbrUL": f.Uplink, "mbrDL": f.Downlink})
			// Its PCF wants every flow to be charged.
			charged = append(charged, object{"snssai": key, "dnn": y.DNN, "filter": f.Filter, "qosRef": i + 1, "chargingMethod": "Offline", "quota": "0", "unitCost": "1"})
		}
		if y.Charging != "" {
			charged = append(charged, object{"snssai": key, "dnn": "", "filter": "", "chargingMethod": y.Charging, "quota": y.Quota, "unitCost": "1"})
		}
	}
	key := func(field, value string) object {
		return object{field: value, "encryptionKey": 0, "encryptionAlgorithm": 0}
	}
	return object{
		"plmnID": s.PLMN, "ueId": "imsi-" + x.IMSI,
		"AuthenticationSubscription": object{
			"authenticationMethod": "5G_AKA", "authenticationManagementField": "8000", "sequenceNumber": "000000000023",
			"permanentKey": key("permanentKeyValue", s.Key), "opc": key("opcValue", s.OPc), "milenage": object{"op": key("opValue", "")},
		},
		"AccessAndMobilitySubscriptionData": object{
			"gpsis": []string{"msisdn-"}, "nssai": object{"defaultSingleNssais": defaults, "singleNssais": []object{}},
			"subscribedUeAmbr": object{"uplink": "1 Gbps", "downlink": "2 Gbps"},
		},
		"SessionManagementSubscriptionData": sessions,
		"SmfSelectionSubscriptionData":      object{"subscribedSnssaiInfos": selection},
		"AmPolicyData":                      object{"subscCats": []string{"free5gc"}},
		"SmPolicyData":                      object{"smPolicySnssaiData": policies},
		"FlowRules":                         flowRules, "QosFlows": flows, "ChargingDatas": charged,
	}
}

// dnn is what a subscriber may have of a data network.
func dnn(y topology.Subscription) object {
	d := object{
		"sscModes":        object{"defaultSscMode": "SSC_MODE_1", "allowedSscModes": []string{"SSC_MODE_2", "SSC_MODE_3"}},
		"pduSessionTypes": object{"defaultSessionType": "IPV4", "allowedSessionTypes": []string{"IPV4"}},
		"sessionAmbr":     object{"uplink": y.Uplink, "downlink": y.Downlink},
		"5gQosProfile":    object{"5qi": 9, "arp": object{"priorityLevel": 8, "preemptCap": "", "preemptVuln": ""}, "priorityLevel": 8},
	}
	if y.IPv4.IsValid() {
		d["staticIpAddress"] = []object{{"ipv4Addr": y.IPv4.String()}}
	}
	return d
}
