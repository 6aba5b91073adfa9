//! The workflow and the budgets in `examples/ci` work unchanged.

use super::Folder;
use crate::support::{self, fixture, read_text};
use std::fs;

const WORKFLOW: &str = "examples/ci/github-actions.yml";

/// Arguments of every memviz command in the workflow, without shell syntax.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("run: "));
    let memviz = lines.filter_map(|line| line.strip_prefix("memviz "));
    memviz.map(|line| line.split_whitespace().take_while(|word| !matches!(*word, ">>" | "||")).collect()).collect()
}

#[test]
fn the_workflow_runs() {
    let workflow = read_text(WORKFLOW);
    for (budgets, code) in [("90%", 0), ("1%", 1)] {
        let folder = Folder::new();
        folder.write("memviz.toml", read_text("examples/ci/memviz.toml").replace("\"90%\"", &format!("{budgets:?}")));
        folder.write("step.pickle", fs::read(fixture("gpt_train")).unwrap());
        let commands = commands(&workflow);
        assert_eq!(commands.len(), 5, "{commands:?}");
        for args in &commands {
            let mut command = support::command(args);
            let output = command.env_remove("GITHUB_WORKSPACE").current_dir(folder.0.path()).output().unwrap();
            let expected = if args[0] == "check" { code } else { 0 };
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(expected), "{args:?}: {stderr}");
            // The output states what was written, and nothing else.
            assert!(stderr.lines().all(|line| line.starts_with("wrote memory.")), "{args:?}: {stderr}");
        }
        for file in ["memory.svg", "memory.xml"] {
            assert!(workflow.contains(&format!("            {file}\n")), "{file} is attached");
            assert!(fs::metadata(folder.path(file)).unwrap().len() > 0, "{file}");
        }
    }
}
