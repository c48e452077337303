package server

import "github.com/seaofsimulation/sos"

// The types below describe for the document what the hand-written decoders read
// and the hand-written encoders write.

type createDoc struct {
	sos.SandboxSpec
}

type createReply struct {
	ID          string   `json:"id"`
	Reconnected bool     `json:"reconnected,omitempty" doc:"The sandbox existed already under this name"`
	Warnings    []string `json:"warnings,omitempty"`
}

type rowReply struct {
	ID                     string     `json:"id"`
	Image                  string     `json:"image"`
	SetupCommands          string     `json:"setup_commands" doc:"Joined with \" && \""`
	Status                 sos.Status `json:"status"`
	SessionCommandCount    int        `json:"session_command_count"`
	LastStandaloneExitCode *int       `json:"last_standalone_exit_code"`
	Name                   string     `json:"name,omitempty"`
	Reason                 sos.Reason `json:"reason,omitempty"`
	Message                string     `json:"message,omitempty"`
	QueuePosition          int        `json:"queue_position,omitempty"`
}

type execDoc struct {
	Command     string            `json:"command"`
	Standalone  bool              `json:"standalone,omitempty" doc:"In a shell of its own, not in the session"`
	Session     string            `json:"session,omitempty" doc:"Default: default"`
	Timeout     sos.Duration      `json:"timeout,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Cwd         string            `json:"cwd,omitempty"`
	User        string            `json:"user,omitempty"`
	Stdin       string            `json:"stdin,omitempty"`
	StdinBase64 string            `json:"stdin_base64,omitempty" doc:"In place of stdin, for bytes"`
}

type execReply struct {
	sos.ExecResult
	Warnings []string `json:"warnings,omitempty"`
}
