package server

import (
	"net/http"
	"strconv"

	"github.com/seaofsimulation/sos"
)

func (s *Server) getTrajectory(r *http.Request) (sos.Trajectory, error) {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return sos.Trajectory{}, err
	}
	t, err := s.svc.Trajectory(r.Context(), ref)
	return t, seedNotFound(err, "Sandbox "+ref+" not found")
}

// trajectory answers in the first system's form; with ?view=full each command
// also has its process.
func (s *Server) trajectory(w http.ResponseWriter, r *http.Request) error {
	view := r.URL.Query().Get("view")
	if view != "" && view != "full" {
		return &sos.Error{Code: sos.CodeInvalid, Message: "there is no view " + quoteShort(view), Fix: "use view=full or leave it out"}
	}
	t, err := s.getTrajectory(r)
	if err != nil {
		return err
	}
	b := strconv.AppendInt([]byte(`{"command_count":`), int64(len(t.Entries)), 10)
	b = append(appendString(appendKey(b, "sandbox_id"), t.Sandbox), `,"trajectory":[`...)
	for i := range t.Entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendEntry(b, &t.Entries[i])
		if view == "full" {
			p, err := marshal(&t.Entries[i].Process)
			if err != nil {
				return err
			}
			b = append(appendKey(b, "process"), p...)
		}
		b = append(b, '}')
	}
	writeBody(w, http.StatusOK, jsonType, append(b, "]}"...))
	return nil
}

// trajectoryText answers with the transcript that the first system's users feed
// to their models: command, output, no times and no codes.
func (s *Server) trajectoryText(w http.ResponseWriter, r *http.Request) error {
	t, err := s.getTrajectory(r)
	if err != nil {
		return err
	}
	var b []byte
	for i := range t.Entries {
		e := &t.Entries[i]
		b = append(append(append(b, "$ "...), e.Process.Command...), '\n')
		switch {
		case !e.HasResult:
			b = append(b, "Status: Command started but no result recorded\n"...)
		case e.Output != "":
			b = append(append(b, e.Output...), '\n')
		}
	}
	writeBody(w, http.StatusOK, textType, b)
	return nil
}

// trajectoryReply and its parts are what trajectory answers, for the document.
type trajectoryReply struct {
	CommandCount int               `json:"command_count"`
	SandboxID    string            `json:"sandbox_id"`
	Trajectory   []trajectoryEntry `json:"trajectory"`
}

type trajectoryEntry struct {
	Command   string            `json:"command"`
	Index     int               `json:"index"`
	Result    *trajectoryResult `json:"result,omitempty"`
	Timestamp float64           `json:"timestamp" doc:"Seconds from the end of the start to the moment the command was accepted"`
	Process   *sos.Process      `json:"process,omitempty" doc:"Only with view=full"`
}

type trajectoryResult struct {
	ExitCode int           `json:"exit_code" doc:"-1 when there is none: see reason"`
	Output   string        `json:"output"`
	Reason   sos.EndReason `json:"reason,omitempty" doc:"Absent for exit"`
}
