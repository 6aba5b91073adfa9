//! Tables of a recording as Parquet: one of them as a file, or all as a folder.

use super::Export;
use crate::Recording;
use crate::analysis::export::TableName;
use crate::cli::format::ExportFormat;
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::recording::{self, Reply, size_of_file};
use crate::report::export::parquet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

impl Export {
    /// The table is written to memory, since it is made from the recording, which is dropped before the reply is written.
    pub(super) fn table(&self, recording: &Recording, table: TableName) -> crate::Result<Reply> {
        let mut bytes = Vec::new();
        self.write_table(recording, table, &mut bytes)?;
        Ok(Reply::new(move |_, out| out.write_all(&bytes)))
    }

    fn write_table(&self, recording: &Recording, table: TableName, out: &mut dyn Write) -> crate::Result<()> {
        let mut writer = parquet::Writer::new(out)?;
        table.of(&recording.devices(), &self.common.devices(), |part| writer.part(&part))??;
        Ok(writer.end()?)
    }

    /// The folder that all tables are to be written to: one that exists, or a name with a separator at its end.
    pub(super) fn folder(&self) -> Result<Option<&Path>, Failure> {
        let Some(output) = self.common.output.as_deref() else { return Ok(None) };
        if !output.is_dir() && !output.to_string_lossy().ends_with(std::path::is_separator) {
            return Ok(None);
        }
        let found = match (self.format, self.table) {
            (Some(format), _) if format != ExportFormat::Parquet => Some("--format"),
            (_, Some(_)) => Some("--table"),
            _ => None,
        };
        match found {
            Some(found) => {
                Err(Failure::Message(format!("expected no {found}: a folder receives all tables, as Parquet")))
            }
            None => Ok(Some(output)),
        }
    }

    /// Writes every table to a folder.
    pub(super) fn all_tables(&self, folder: &Path) -> Result<Outcome, Failure> {
        let files: Vec<(TableName, PathBuf)> =
            TableName::ALL.map(|table| (table, folder.join(format!("{}.parquet", table.name())))).to_vec();
        if let Some((_, file)) = files.iter().find(|(_, file)| !self.common.force && file.exists()) {
            return Err(Failure::Message(format!("{} already exists; --force overwrites it", file.display())));
        }
        recording::use_threads(&self.common);
        let path = self.common.path();
        let progress = Progress::start(size_of_file(&self.common.input), 1, self.common.quiet);
        let recording =
            recording::open(&self.common.input, &self.common, self.common.view_of_one(), progress.bytes.first());
        let recording = recording.map_err(|error| Failure::about(&path, &error))?;
        drop(progress);
        let tables: Vec<(PathBuf, Vec<u8>)> = files
            .into_iter()
            .map(|(table, file)| {
                let mut bytes = Vec::new();
                self.write_table(&recording, table, &mut bytes).map_err(|error| Failure::about(&path, &error))?;
                Ok((file, bytes))
            })
            .collect::<Result<_, Failure>>()?;
        fs::create_dir_all(folder).map_err(|error| Failure::Message(format!("{}: {error}", folder.display())))?;
        for (file, bytes) in tables {
            output::write_file(&self.common, &file, |out| out.write_all(&bytes))?;
        }
        let contradicts = self.common.strict && recording.anomalies() > 0;
        Ok(if contradicts { Outcome::CheckFailed } else { Outcome::Done })
    }
}
